sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null; sbplan report plan.json -o plan.json; sbplan report plan.json -o missing/page.html
