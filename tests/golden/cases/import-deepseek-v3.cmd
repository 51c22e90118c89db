sbplan import hf "$DATA/hf-deepseek-v3.json" --global-batch 8 --sequence 64 --precision mixed
