sbplan search tiny-gpt "$DATA/falling-curve.json"
