sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=2 --set owner=hand-over -o plan.json >/dev/null && sbplan run plan.json
