sbplan import hf "$DATA/hf-llama4.json" --global-batch 8 --sequence 64
