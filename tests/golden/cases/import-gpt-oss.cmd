sbplan import hf "$DATA/hf-gpt-oss.json" --global-batch 8 --sequence 64
