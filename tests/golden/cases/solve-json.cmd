sbplan solve "$DATA/problem.json" --algorithm exhaustive --json | grep -v elapsed
