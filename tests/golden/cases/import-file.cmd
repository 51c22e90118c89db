sbplan import hf "$DATA/hf-gemma3.json" --global-batch 8 --sequence 64 -o model.json && sbplan search model.json laptop-4 2>&1 | grep -E "^model|block0"
