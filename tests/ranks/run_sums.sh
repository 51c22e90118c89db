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
