sbplan search --quick --runnable tiny-mlp laptop-4 --set pipeline=1 -o plan.json >/dev/null && sed 's/"rest":.\["S[0-9]"/"rest": ["B"/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
