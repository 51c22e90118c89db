sbplan price deepseek-v3 dgx-h100-8x8 --pp 8 --ep 8 --zero 1 --recompute full --set stage_cut=8,8,8,8,8,8,8,5 --set global_batch=64 --set offload=true -o plan.json >price.out
sbplan export plan.json --to megatron -o args && cat args
