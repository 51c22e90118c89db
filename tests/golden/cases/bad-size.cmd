sbplan search tiny-mlp laptop-4 --memory-limit 80Q
