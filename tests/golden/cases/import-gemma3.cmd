sbplan import hf "$DATA/hf-gemma3.json" --global-batch 8 --sequence 64
