sbplan solve "$DATA/problem-infeasible.json"
