sbplan search tiny-mlp "$DATA/huge-cluster.json"
