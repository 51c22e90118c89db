sbplan search tiny-mlp
