sbplan export $SBPLAN_CONFIGS/models/tiny-gpt.json --to megatron -o args
