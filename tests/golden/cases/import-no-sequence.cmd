sbplan import hf "$DATA/hf-llama.json" --global-batch 8
