sbplan import hf "$DATA/gpt2-config.json" --sequence 64
