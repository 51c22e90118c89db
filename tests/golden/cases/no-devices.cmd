sbplan search tiny-mlp "$DATA/no-devices.json"
