sbplan import hf "$DATA/hf-mistral.json" --global-batch 8 --sequence 64 --precision mixed
