sbplan search tiny-gpt laptop-4 --set lyers=3
