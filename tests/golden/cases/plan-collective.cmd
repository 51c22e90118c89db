sbplan search --runnable tiny-mlp laptop-4 --set pipeline=1 -o plan.json >/dev/null && sed '/"collectives"/,$s/"count":.[0-9]*/"count": 7/' plan.json >tampered.json && ! cmp -s plan.json tampered.json &&
sbplan explain tampered.json
