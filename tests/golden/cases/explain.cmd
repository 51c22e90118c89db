sbplan search --runnable tiny-mlp laptop-4 -o plan.json >/dev/null && sbplan explain plan.json
