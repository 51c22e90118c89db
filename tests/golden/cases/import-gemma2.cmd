sbplan import hf "$DATA/hf-gemma2.json" --global-batch 8 --sequence 64
