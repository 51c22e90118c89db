sbplan price llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --tp 2 --cp 2 --zero 3 --recompute full --micro-batch 2 -o plan.json >price.out
sbplan export plan.json --to fsdp2 -o fsdp.yaml && cat fsdp.yaml
