sbplan search tiny-mlp laptop-4 --devices 3
