sbplan price qwen3-30b-a3b dgx-h100-8x8 --ep 8 --zero 1 --set global_batch=64 -o plan.json >price.out
sbplan export plan.json --to dtensor -o dtensor.json
