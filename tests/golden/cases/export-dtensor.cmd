sbplan price "$DATA/two-linears.json" laptop-4 --strategy "$DATA/partial-sums.json" -o plan.json >price.out
sbplan export plan.json --to dtensor -o dtensor.json && cat dtensor.json
