sbplan list models
