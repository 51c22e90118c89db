sbplan list cluster
