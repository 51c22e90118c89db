sbplan validate "$DATA/strategy.json"
