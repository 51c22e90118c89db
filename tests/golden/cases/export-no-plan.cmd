sbplan export plan.json --to megatron -o args
