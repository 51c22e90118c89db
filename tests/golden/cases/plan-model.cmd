sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sed 's/"global_batch":.*16/"global_batch": 32/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
