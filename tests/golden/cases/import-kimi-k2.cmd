sbplan import hf "$DATA/hf-kimi-k2.json" --global-batch 8 --sequence 64
