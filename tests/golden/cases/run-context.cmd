sbplan search --runnable tiny-gpt laptop-4 --fix block0.attention=context:4 -o plan.json >/dev/null &&
sbplan run plan.json --verify | sed -n '/^verified/s/;.*//p'
sbplan search --runnable tiny-gpt laptop-4 --set context=ring --fix block0.attention=context:4 -o ring.json
sbplan search tiny-gpt laptop-4 --set context=ring --fix block0.attention=context:4 --set pipeline=1 --set zero=0 --set recompute=none --set offload=false -o ring.json >/dev/null &&
sbplan run ring.json
