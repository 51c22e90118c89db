sbplan price tiny-gpt laptop-4 --tp 2 -o plan.json >price.out
ln -s plan.json args
sbplan export plan.json --to megatron -o args
