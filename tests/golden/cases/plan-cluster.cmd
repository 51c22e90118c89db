sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sed 's/"alpha_s":.*,/"alpha_s": 1,/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
