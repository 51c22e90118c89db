# Plans of one layout stand together, though another layout's plan costs less than some of them.
sbplan search tiny-mlp laptop-4 --top 8 | grep -E '^(TP|[0-9])'
sbplan search tiny-mlp laptop-4 --top 8 --json | grep -E '"(rank|text)":' | tail -n 16
