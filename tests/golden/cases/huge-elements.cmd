sbplan search "$DATA/huge-elements.json" laptop-4
