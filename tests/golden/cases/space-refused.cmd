# what a space says of the model or the cluster names the file that was given
cat >model.json <<'END'
{"name": "m", "global_batch": 8, "layers": [{"op": "embedding", "name": "e", "vocab": 8, "hidden": 8}]}
END
sbplan search model.json laptop-4 --space cdp --devices 1
sbplan search tiny-gpt laptop-4 --space megatron-node
sbplan search model.json laptop-4 --space summa
