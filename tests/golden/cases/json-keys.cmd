sbplan search tiny-mlp laptop-4 --json | sed -E "s/:[^{[]*$//"
