sbplan import hf "$DATA/hf-deepseek-v2.json" --global-batch 8 --sequence 64 --precision mixed
