sbplan search tiny-mlp laptop-4 --time-limit -1
