sbplan search tiny-mlp laptop-4 --fix gelu1=batch:2
