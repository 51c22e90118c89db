sbplan import hf "$DATA/hf-llama.json" --global-batch 8 --sequence 64 --precision mixed
