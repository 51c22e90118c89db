sbplan search tiny-gpt laptop-4 --set recompute=selective --set owner=none --fix block0.up=column:2,row:2 -o plan.json >search.out
sbplan export plan.json --to megatron -o args && cat args
