sbplan price tiny-gpt laptop-4 --tp 2 --measured 4ms | sed -n '/^step/,/^$/p'
sbplan price tiny-gpt laptop-4 --tp 2 --measured 2ms | sed -n '/^measured/,/^$/p'
sbplan price tiny-gpt laptop-4 --tp 2 --measured 1000s | sed -n '/^measured/,/^$/p'
sbplan price tiny-gpt laptop-4 --tp 2 --measured 4 --json | sed -n '/"measured"/,/}/p'
sbplan price tiny-gpt laptop-4 --tp 2 --measured 4m
