sbplan search "$DATA/negative.json" laptop-4
