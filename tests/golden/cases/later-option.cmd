sbplan search tiny-mlp laptop-4 --sweep global_batch=8,16
