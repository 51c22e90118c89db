echo '{"name": "m", "global_batch": 8, "input": {"height": 5, "width": 5, "channels": 3}, "layers": [{"op": "conv2d", "out": 8, "kernel": 7}]}' > model.json && sbplan search model.json laptop-4
