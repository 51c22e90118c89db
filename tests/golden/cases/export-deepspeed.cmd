sbplan price llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --tp 2 --zero 3 --recompute full --set offload=true -o plan.json >price.out
sbplan export plan.json --to deepspeed -o ds.json && cat ds.json
