sbplan price mixtral-8x7b dgx-h100-8x8 --set global_batch=256 --ep 8 --zero 3 -o plan.json >price.out
sbplan export plan.json --to fsdp2 -o fsdp.yaml
