sbplan import onnx "$DATA/gpt2-config.json" --global-batch 8 --sequence 64
