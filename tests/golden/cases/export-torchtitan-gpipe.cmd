sbplan price llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --tp 2 --cp 2 --pp 4 --zero 3 --recompute full --set schedule=gpipe -o plan.json >price.out
sbplan export plan.json --to torchtitan -o configure.py && cat configure.py
