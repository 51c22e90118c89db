sbplan search tiny-mlp somewhere-else
