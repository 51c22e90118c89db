sbplan import hf "$DATA/hf-bert-original.json" --global-batch 8 --sequence 64 --precision mixed
