sbplan validate "$DATA/runs.json" --json
