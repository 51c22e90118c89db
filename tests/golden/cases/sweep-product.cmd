sbplan search tiny-gpt laptop-4 --sweep zero=0,3 --sweep global_batch=8,64 --sweep devices=2,4
