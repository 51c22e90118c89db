sbplan import hf "$DATA/hf-vit.json" --global-batch 32 --sequence 16
