sbplan report plan.json --to megatron
