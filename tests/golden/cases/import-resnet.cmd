sbplan import hf "$DATA/hf-resnet.json" --global-batch 32
