sbplan search tiny-mlp laptop-4 -o nowhere/plan.json
