#!/bin/sh
# What plain search finds for shipped models on shipped clusters, and whether the executor takes it: a
# line for each pair with the plan's cut and the reason of a refusal. Fails where a plan is refused for
# anything but an operator without kernels. Minutes long, so that no suite runs it.
# usage: what_runs.sh SBPLAN SBPLAN-RUN CONFIGS [SECONDS-A-SEARCH]
set -u
sbplan=$(realpath "$1") run=$(realpath "$2")
export SBPLAN_CONFIGS="$(realpath "$3")"
limit=${4:-20}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
plans=0 runs=0 kernels=0 others=0

# A run by NCCL is refused after all that the plan itself may be refused for (sbp_run_check).
judge() { # MODEL CLUSTER
    cut=$(sed -n 's/^parallel *//p' found)
    plans=$((plans + 1))
    "$run" plan.json --backend nccl >/dev/null 2>said
    if grep -q 'backend nccl: plans run on' said; then
        runs=$((runs + 1)) said=runs
    else
        said=$(sed -n '1s/^.*plan\.json: plan: //p' said)
        case $said in
        *'not run: legal are linear, '*) kernels=$((kernels + 1)) ;;
        *) others=$((others + 1)) ;;
        esac
    fi
    echo "$1 on $2: $cut: ${said:-$(cat said)}"
}

for model in tiny-gpt tiny-mlp gpt2-small gpt2-xl gpt3-175b myelin-12b autoddl-mlp bert-large llama-3.1-8b \
    qwen3-8b gemma-3-27b mixtral-8x7b resnet-50 vit-b-16; do
    for cluster in a100-sxm-8 dgx-h100-8x8 v100-roce-4x8; do
        status=0
        "$sbplan" search "$model" "$cluster" --quick --time-limit "$limit" -o plan.json >found 2>said || status=$?
        if [ $status -eq 0 ]; then
            judge "$model" "$cluster"
        elif [ $status -ne 1 ]; then
            others=$((others + 1))
            echo "$model on $cluster: exit status $status: $(head -n 1 said)"
        else
            echo "$model on $cluster: no plan: $(grep -h -e '^infeasible' -e '^no strategy' found | head -n 1)"
        fi
    done
done
echo "$plans plans: $runs run, $kernels have operators without kernels, $others are refused otherwise"
[ "$plans" -gt 0 ] && [ "$others" -eq 0 ]
