sbplan price tiny-mlp laptop-4 --dp 4 -o plan.json >price.out
sbplan export plan.json --to megatron -o args
