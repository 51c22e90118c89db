sbplan search tiny-mlp laptop-4 --json=yes
