sbplan price tiny-gpt laptop-4 --cp 2 -o plan.json >price.out
sbplan export plan.json --to deepspeed -o ds.json
