sbplan import hf "$DATA/hf-glm4-moe.json" --global-batch 8 --sequence 64
