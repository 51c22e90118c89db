sbplan search tiny-mlp laptop-4 --space data-parallel --sweep global_batch=8,6,7
