echo '{"name": "m", "global_batch": 8, "features": 64, "layers": [{"op": "linear", "out": 128}, {"op": "swiglu"}]}' > model.json && sbplan search model.json laptop-4
