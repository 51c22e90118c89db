#!/bin/sh
# Plans on GPUs by NCCL, each rank a process with a GPU of its own, on the stand-ins, verified against
# one device in double.
# usage: run_nccl.sh SBPLAN-RUN-DOUBLE-NCCL SBPLAN CONFIGS MPIRUN FLAGS...
set -eu
run=$1 sbplan=$2 configs=$3
shift 3
folder=$(mktemp -d)
export SBP_DOUBLE_RUN=$$
trap 'rm -rf "$folder" /dev/shm/nccl-double-$$-*' EXIT

complain() {
    echo "$*"
    cat "$folder/out" "$folder/err" || true
    exit 1
}

verified() { # NAME DTYPE OPTION...: a plan by these options, two steps
    name=$1 dtype=$2
    shift 2
    "$sbplan" price "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" --set hidden=16 \
        --set heads=2 --set sequence=8 --set vocab=32 --set global_batch=2 "$@" \
        -o "$folder/$name.json" >"$folder/out" 2>"$folder/err" || complain "no plan $name"
    $start -n "$ranks" "$run" "$folder/$name.json" --backend nccl --device cuda --dtype "$dtype" --steps 2 \
        --verify >"$folder/out" 2>"$folder/err" || complain "$name: exit $?"
    grep -q '^verified: every gradient, loss and update' "$folder/out" &&
        grep -q '(nccl, cuda, ' "$folder/out" || complain "$name: not verified"
}

start="$*" ranks=4
verified pipeline f32 --pp 2 --tp 2
verified zero bf16 --tp 2 --zero 3
# Groups that hand sums on in a ring.
ranks=3
verified pyramid f32 --pp 2 --set cluster.levels[0].size=3 --set tied=false --set pyramid=true \
    --set schedule=cdp-v1 --set allow_delayed_gradients=true
code=0
$start -n 4 "$run" "$folder/zero.json" --backend nccl >"$folder/out" 2>"$folder/err" || code=$?
[ $code -eq 2 ] && grep -q 'backend nccl: .* with --device cuda' "$folder/err" || complain "on cpu: exit $code"
