sbplan price tiny-gpt laptop-4 --tp 2 -o plan.json >price.out
sbplan export plan.json --to megatron -o no/args
