sbplan price tiny-mlp laptop-4 --strategy "$DATA/strategy-product.json"
