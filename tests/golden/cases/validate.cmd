sbplan validate "$DATA/runs.json" --rows
