sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null; sbplan report plan.json
