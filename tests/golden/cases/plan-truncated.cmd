sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sed '30,$d' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
