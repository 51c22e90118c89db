sbplan import hf "$DATA/gpt2-config.json" --global-batch 8 --sequence 64 -o model.json && cat model.json && sbplan search model.json laptop-4 | grep step
