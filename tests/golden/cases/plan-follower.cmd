sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sed 's/"name":.*"relu3",/& "axes": [],/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
