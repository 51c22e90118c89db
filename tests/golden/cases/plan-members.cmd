sbplan search --runnable tiny-mlp laptop-4 --set pipeline=1 -o plan.json >/dev/null && sed '/"collectives"/,$s/"members":.[0-9]*/"members": 3/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
