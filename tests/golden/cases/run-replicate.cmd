sbplan search --runnable tiny-mlp laptop-4 --fix fc1=replicate:4 -o plan.json >/dev/null &&
sbplan run plan.json
