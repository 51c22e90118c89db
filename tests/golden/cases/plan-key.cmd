sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sed 's/"made_by"/"maed_by"/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
