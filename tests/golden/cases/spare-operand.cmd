sbplan search tiny-mlp laptop-4 flat-128
