sbplan import hf "$DATA/hf-qwen3-moe.json" --global-batch 8 --sequence 64 --precision mixed
