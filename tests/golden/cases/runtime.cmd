sbplan list runtimes | grep -E '^(runtime|sbplan)'
sbplan search tiny-gpt laptop-4 --runtime sbplan | grep '^step'
sbplan search tiny-gpt laptop-4 --runtime none | grep '^step'
cat >slow.json <<'E'
{"name": "slow", "hides": {"gradients": 1, "weights": 0.5}, "host_s": 1e-4, "messages": "block"}
E
sbplan search tiny-gpt laptop-4 --runtime slow.json -o slow-plan.json | grep -E '^(search|step)'
sbplan explain slow-plan.json | grep '^step'
grep -A3 '"runtime"' slow-plan.json
sbplan search tiny-gpt laptop-4 --runtime slow.json --set cluster.runtime.host_s=1e-3 | grep -E '^(search|step)'
sbplan search tiny-gpt laptop-4 --set cluster.runtime=slow.json | grep '^step'
sbplan search tiny-gpt laptop-4 --runtime fsdp
echo '{"name": "odd", "hides": {"gradient": 1}}' >odd.json
sbplan search tiny-gpt laptop-4 --runtime odd.json
sbplan search tiny-gpt laptop-4 --set cluster.runtime=odd.json
