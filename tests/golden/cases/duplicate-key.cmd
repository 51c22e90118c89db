sbplan search "$DATA/duplicate.json" laptop-4
