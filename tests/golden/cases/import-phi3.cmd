sbplan import hf "$DATA/hf-phi3.json" --global-batch 8 --sequence 64
