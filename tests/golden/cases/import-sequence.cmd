sbplan import hf "$DATA/gpt2-config.json" --global-batch 8 --sequence 256
