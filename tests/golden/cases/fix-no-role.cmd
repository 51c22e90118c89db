sbplan search tiny-mlp laptop-4 --fix fc1=head:2
