sbplan solve "$DATA/problem.json"
