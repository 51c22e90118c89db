#!/bin/sh
# U V W with a partial sum that lives on from V into W (OneFlow, section 3.3): the search chooses it,
# and 8 ranks of one process verify every number of the plan.
# usage: run_sums.sh SBPLAN SBPLAN-RUN SOURCES
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$1" search --runnable "$3/tests/golden/data/uvw.json" "$3/configs/clusters/gcp-a100-2x4.json" \
    -o "$folder/plan.json" >/dev/null
"$1" explain "$folder/plan.json" >"$folder/out"
grep -q '^ *rests *v .* P:[248]' "$folder/out"
"$2" "$folder/plan.json" --backend threads --verify --steps 2 >"$folder/out"
grep -q '^verified' "$folder/out"

# A norm at the model's start: one instruction forms the gradients of a split input and of weights.
cat >"$folder/normed.json" <<'J'
{"name": "normed", "global_batch": 8, "input": {"features": 64, "split": true}, "layers": [
 {"op": "layernorm", "name": "n"}, {"op": "linear", "name": "l", "out": 64}, {"op": "relu"},
 {"op": "linear", "name": "o", "out": 8}]}
J
"$1" search --runnable "$folder/normed.json" "$3/configs/clusters/laptop-4.json" -o "$folder/normed.plan" >/dev/null
for verify in full sampled; do
    "$2" "$folder/normed.plan" --backend threads --verify=$verify --steps 2 >"$folder/out"
    grep -q '^verified' "$folder/out"
done
