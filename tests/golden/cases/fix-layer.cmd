sbplan search tiny-mlp laptop-4 --fix fc9=column:2
