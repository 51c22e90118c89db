sbplan import hf "$DATA/hf-llama.json" --global-batch 8 --sequence 1024 | grep sequence
