sbplan search "$DATA/huge.json" laptop-4
