sbplan list clusters
