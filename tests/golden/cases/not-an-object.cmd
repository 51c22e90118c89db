sbplan search "$DATA/not-an-object.json" laptop-4 --set sequence=2
