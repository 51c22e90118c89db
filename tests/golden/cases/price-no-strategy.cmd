sbplan price tiny-mlp laptop-4
