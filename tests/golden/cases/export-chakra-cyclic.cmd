sbplan price tiny-gpt laptop-4 --pp 2 --tp 2 --set schedule=cdp-v2 --set allow_delayed_gradients=true -o plan.json >price.out
sbplan export plan.json --to chakra -o step
