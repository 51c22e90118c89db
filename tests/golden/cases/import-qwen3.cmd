sbplan import hf "$DATA/hf-qwen3.json" --global-batch 8 --sequence 64 --precision mixed
