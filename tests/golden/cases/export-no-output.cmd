sbplan export plan.json --to megatron
