sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=2 -o plan.json >/dev/null && sed -i "s/\"lower_bound_s\":.*/\"lower_bound_s\": 0.001,/" plan.json && sbplan explain plan.json
