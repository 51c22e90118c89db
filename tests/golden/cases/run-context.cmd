sbplan search --runnable tiny-gpt laptop-4 --set context=ring --fix block0.attention=context:4 -o plan.json
sbplan search tiny-gpt laptop-4 --set context=ring --fix block0.attention=context:4 --set pipeline=1 --set micro_batch=8 --set zero=0 --set recompute=none --set offload=false -o plan.json >/dev/null &&
sbplan run plan.json
