sbplan search --runnable tiny-mlp laptop-4 --set pipeline=1 -o plan.json >/dev/null && sed 's/"communication_s":.[-.e0-9]*/"communication_s": 1/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
