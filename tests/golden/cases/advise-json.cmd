sbplan advise tiny-mlp laptop-4 --time-limit none --json | grep -A3 -E '"(of|key)"'
