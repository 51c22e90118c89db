sbplan solve "$DATA/problem.json" --algorithm exect
