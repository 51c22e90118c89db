sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sed 's/"model_hash":.*/"model_hash": "fnv1a64:0",/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
