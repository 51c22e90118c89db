sed 's/"output": "S2"/"output": "B"/; s/"role": "channel"/"role": "batch"/' "$DATA/custom-layer.json" > model.json && sbplan search model.json laptop-4
