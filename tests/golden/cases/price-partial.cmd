sbplan price "$DATA/two-linears.json" laptop-4 --strategy "$DATA/partial-sums.json" -o plan.json && sbplan explain plan.json
