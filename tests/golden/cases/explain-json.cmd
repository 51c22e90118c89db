sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sbplan explain plan.json --json | sed -E "s/:[^{[]*$//" | head -96
