sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=4 --set schedule=cdp-v2 --set allow_delayed_gradients=true | head -10
