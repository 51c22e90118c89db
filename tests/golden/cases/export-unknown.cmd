sbplan export plan.json --to megaton -o args
