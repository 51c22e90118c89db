sbplan search --runnable tiny-mlp laptop-4 --fix fc1=batch:2,column:2
