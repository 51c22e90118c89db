sbplan search tiny-mlp laptop-4 --fix fc1=batch:2,batch:4
