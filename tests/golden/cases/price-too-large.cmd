sbplan price tiny-mlp laptop-4 --strategy "$DATA/strategy.json" --memory-limit 1K | grep memory
