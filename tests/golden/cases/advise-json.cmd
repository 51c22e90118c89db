sbplan advise tiny-mlp laptop-4 --json | grep -A3 -E '"(of|key)"'
