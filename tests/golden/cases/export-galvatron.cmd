sbplan price llama-3.1-8b dgx-h100-8x8 --set global_batch=256 --tp 4 --cp 2 --pp 4 --zero 3 --recompute full --set stage_cut=9,9,8,6 --set schedule=gpipe -o plan.json >price.out
sbplan export plan.json --to galvatron -o galvatron.json && cat galvatron.json
