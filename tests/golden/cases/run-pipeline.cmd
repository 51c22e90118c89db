sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=2 --set schedule=cdp-v1 --set allow_delayed_gradients=true -o plan.json >/dev/null && sbplan run plan.json
