roles() { grep -A 12 '"name":[[:space:]]*"block[01]\.up"' plan.json | tr -d '\t\n ' | grep -o '"roles":{[^}]*}'; }
sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=4 --set zero=1 --fix block0.up=row:2 -o plan.json | sed -n 3p; roles; rm plan.json
sbplan search tiny-gpt dgx-a100-8x8 --devices 16 --set micro_batch=4 --set zero=3 --fix block1.up=column:2/8 -o plan.json | sed -n 3p; roles; rm plan.json
sbplan search tiny-gpt dgx-a100-8x8 --devices 16 --set pipeline=2 --set micro_batch=2 --fix block0.up=batch:1/2,sequence:1/4 -o plan.json | sed -n 3p; roles; rm plan.json
