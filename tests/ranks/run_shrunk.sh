#!/bin/sh
# Plans of models that one device cannot hold in double are verified on smaller ones, and stay the
# plans that they are: as many calls, stages and ranks, by the same schedule; or by a sample.
# usage: run_shrunk.sh SBPLAN SBPLAN-RUN CONFIGS
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# What a plan decides, of a run's JSON.
decided() {
    grep -E '"(calls|stages|schedule|ranks)":' "$1"
}

# MODEL CLUSTER: a plan that is small enough to run whole, too.
check_alike() {
    "$sbplan" search "$configs/models/$1.json" "$configs/clusters/$2.json" --runnable --quick \
        -o "$folder/plan.json" >/dev/null
    "$run" "$folder/plan.json" --json >"$folder/whole"
    "$run" "$folder/plan.json" --json --verify=shrunk --steps 2 >"$folder/shrunk"
    grep -q '"status":	"passed"' "$folder/shrunk"
    decided "$folder/whole" >"$folder/whole.decided"
    decided "$folder/shrunk" | cmp - "$folder/whole.decided"
}

# The last plan, which runs whole: of its gradients a sample is drawn by the seed.
check_sampled() {
    "$run" "$folder/plan.json" --verify=sampled --seed 3 --steps 2 >"$folder/out"
    grep -q '^verified: every loss and update, and of every gradient one output in 32 (drawn by seed 3)' \
        "$folder/out"
    "$run" "$folder/plan.json" --verify=sampled --json | grep -q '"sampled_one_in":	32'
}

# MODEL CLUSTER OPTION...: 1.6 to 175 G parameters.
check_large() {
    model=$1 cluster=$2
    shift 2
    "$sbplan" search "$configs/models/$model.json" "$configs/clusters/$cluster.json" --runnable --quick "$@" \
        -o "$folder/plan.json" >/dev/null
    "$run" "$folder/plan.json" --verify=shrunk >"$folder/out"
    grep -q '^verified' "$folder/out"
    grep -q '^shrunk: a model of .* [kM] parameters' "$folder/out"
}

sbplan=$1 run=$2 configs=$3
check_alike tiny-gpt laptop-4
check_sampled
check_alike tiny-mlp gcp-a100-2x4
check_sampled
check_large gpt2-xl gcp-a100-2x4
check_large qwen3-8b gcp-a100-2x4
check_large gemma-3-27b gcp-a100-2x4 --set layers=6 --set window_layers=5
check_large deepseek-v3 gcp-a100-2x4 --set layers=5 --set dense_layers=1 --set global_batch=64 \
    --set cluster.device.memory_bytes=1e13
check_large wide-deep gcp-a100-2x4
check_large autoddl-mlp gcp-a100-2x8
"$run" "$folder/plan.json" --verify=small 2>"$folder/err" && exit 1
grep -q -e '--verify: "small" is not legal; legal: none, full, sampled, shrunk' "$folder/err"
