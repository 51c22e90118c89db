sbplan search --runnable tiny-mlp laptop-4 --set pipeline=1 -o plan.json >/dev/null && sed 's/"device_bytes":.[0-9]*/"device_bytes": 1/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
