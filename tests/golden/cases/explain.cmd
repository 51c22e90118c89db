sbplan search --runnable tiny-mlp laptop-4 --set pipeline=1 -o plan.json >/dev/null && sbplan explain plan.json
