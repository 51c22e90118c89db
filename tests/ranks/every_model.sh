#!/bin/sh
# Every shipped model, in the plan that each space's search finds for 4 and for 8 ranks: shrunk, run for
# 20 steps and verified against one device in double. A plan that several spaces find runs once. Where no plan
# of a space fits or runs, the line says why. Hours long, so that no other suite runs it: ./dev test models.
# usage: every_model.sh SBPLAN SBPLAN-RUN CONFIGS [MODEL...]
set -u
sbplan=$(realpath "$1") run=$(realpath "$2")
SBPLAN_CONFIGS=$(realpath "$3")
export SBPLAN_CONFIGS
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
# shellcheck disable=SC2046 # words
[ $# -gt 0 ] || set -- $(basename -s .json "$SBPLAN_CONFIGS"/models/*.json)
verified=0 again=0 absent=0 failed=0

# What keeps a model from seconds and --verify=shrunk does not change.
smaller() { # MODEL
    case $1 in
    resnet-50 | vgg-13) echo '--set image=64' ;;
    face) echo '--set classes=512 --set embedding=64 --set depth=18 --set image=32' ;;
    deepseek-v3 | kimi-k2 | glm-4.5) echo '--set layers=5 --set dense_layers=1' ;;
    gemma-3-27b) echo '--set layers=6 --set window_layers=5' ;;
    tiny-* | autoddl-mlp | autoddl-attention | wide-deep | vit-b-16) ;;
    gpt-oss-120b) echo '--set layers=8 --set window_layers=4' ;;
    *) echo '--set layers=8' ;;
    esac
}

# Norms over few values amplify rounding beyond bounds that are for sums: batch norms of 4 places of one image,
# and, where a model is shrunk, those of heads of two features. In double little is left of it.
type_of() { # MODEL
    case $1 in face | resnet-50 | qwen3-*) echo '--dtype f64' ;; esac
}

# The plan of a space, on devices that hold ten times as much where it does not fit.
plan_for() { # MODEL DEVICES SPACE
    for bytes in 40G 400G 1e14; do
        rm -f plan.json out
        status=0
        # shellcheck disable=SC2046 # words
        "$sbplan" search "$1" gcp-a100-2x4 --devices "$2" --space "$3" --runnable --quick --time-limit 20 \
            --memory-limit $bytes $(smaller "$1") -o plan.json >found 2>said || status=$?
        [ "$status" -eq 1 ] || break
    done
}

# Whether no plan of the space is legal, or none runs, and the search says so.
is_told() {
    [ "$status" -eq 1 ] ||
        { [ "$status" -eq 2 ] && grep -q -e 'is searched and priced, not run' -e '--set: no legal way to cut' said; }
}

# The space that found the same plan before.
found_before() { # MODEL DEVICES SPACE
    sum=$(sed -n '/^\t"parallel":/,$p' plan.json | cksum)
    sed -n "s/^$sum //p" "plans-$1-$2" 2>/dev/null | grep . && return
    echo "$sum $3" >>"plans-$1-$2"
    return 1
}

runs() { # MODEL
    # shellcheck disable=SC2046 # words
    "$run" plan.json --verify=shrunk --steps 20 $(type_of "$1") >out 2>said
}

# Counts and tells one plan: verified, absent, or failed.
check() { # MODEL DEVICES SPACE
    plan_for "$@"
    if [ "$status" -eq 0 ] && space=$(found_before "$@"); then
        again=$((again + 1))
        echo "$1, $2 ranks, $3: the plan of $space"
    elif is_told; then
        absent=$((absent + 1))
        echo "$1, $2 ranks, $3: no plan: $(cat said found | head -n 1)"
    elif [ "$status" -eq 0 ] && [ -s plan.json ] && runs "$1"; then
        verified=$((verified + 1))
        echo "$1, $2 ranks, $3: $(sed -n 's/^layout *//p' found): $(sed -n 's/^verified.*difference is/verified,/p' out)"
    else
        failed=$((failed + 1))
        echo "$1, $2 ranks, $3: FAILED: $({ cat said && tail -n 1 out; } | head -n 1)"
    fi
}

for model in "$@"; do
    for devices in 4 8; do
        for space in full autoddl data-parallel zero megatron megatron-3d gshard summa myelin cdp; do
            check "$model" $devices $space
        done
    done
done
echo "$verified plans ran and were verified, $again were found again, $absent searches had none, $failed failed"
[ $verified -gt 0 ] && [ $failed -eq 0 ]
