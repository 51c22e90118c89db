sbplan price llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --tp 4 --pp 2 --zero 3 --sequence-parallel --recompute attention -o plan.json >price.out
sbplan export plan.json --to megatron-bridge -o recipe.py && cat recipe.py
