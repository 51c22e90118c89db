sbplan price tiny-gpt laptop-4 --pp 2 --vpp 2 --micro-batch 4 --set global_batch=16 --set tied=false --set schedule=cdp-v2 --set allow_delayed_gradients=true -o plan.json >price.out
sbplan export plan.json --to megatron -o args
