sbplan search tiny-gpt laptop-4 --set boxing=ful
