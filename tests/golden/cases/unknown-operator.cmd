sbplan search "$DATA/unknown-operator.json" laptop-4
