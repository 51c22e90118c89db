sbplan export plan.json -o args
