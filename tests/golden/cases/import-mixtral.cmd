sbplan import hf "$DATA/hf-mixtral.json" --global-batch 8 --sequence 64 --precision mixed
