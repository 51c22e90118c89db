sbplan search tiny-mlp laptop-4 --objective money
