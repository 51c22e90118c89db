sbplan search tiny-mlp laptop-4 --sead=3
