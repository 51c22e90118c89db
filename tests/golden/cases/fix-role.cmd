sbplan search tiny-mlp laptop-4 --fix fc1=colum:2
