#!/bin/sh
# All that only GPUs can show, on those of this machine: kernels beside their CPU twins, by themselves and
# under compute-sanitizer; random plans over threads; a calibration and a verified plan over NCCL; steps
# of GPT-2 beside PyTorch's. Every check is made, whatever failed before it. Where all passed, PAGE has
# what was found in place of its section "## ./dev gpu" and what follows that.
#
# usage: on_device.sh ROOT BUILD PAGE
# Exit status: 0 all passed, 1 a check failed, 2 no GPU. The environment may name other programs and
# smaller settings, as below.
set -u
root=$(realpath "$1") build=$(realpath "$2") page=$(realpath "$3")
sbplan=${SBP_GPU_SBPLAN:-$build/planner/sbplan}
run=${SBP_GPU_RUN:-$build/executor/sbplan-run}
nccl_run=${SBP_GPU_NCCL_RUN:-$run}
calibrate=${SBP_GPU_CALIBRATE:-$build/calib/sbplan-calibrate}
plans=${SBP_GPU_PLANS:-$build/tests/gpu/device_plans}
checks=${SBP_GPU_CHECKS:-$(find "$build/tests/gpu" -maxdepth 1 -type f -name 'device_*' | sort)} # and plans
smi=${SBP_GPU_SMI:-nvidia-smi}
sanitizer=${SBP_GPU_SANITIZER:-compute-sanitizer}
python=${SBP_GPU_PYTHON:-python3}
mpirun=${SBP_GPU_MPIRUN:-mpirun}
plan_count=${SBP_GPU_PLAN_COUNT:-200}
calibration=${SBP_GPU_CALIBRATION:---budget-s 90} # options
models=${SBP_GPU_MODELS:-gpt2-small gpt2-medium}
shape=${SBP_GPU_SHAPE:---set sequence=1024 --set global_batch=16 --micro-batch 16} # options
tiny=${SBP_GPU_TINY:-} # options of the plan over NCCL
steps=${SBP_GPU_STEPS:-35} warm_up=5

devices=$("$smi" --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || devices=
if [ -z "$devices" ]; then
    echo "on_device.sh: $smi finds no GPU; $page stays as it is" >&2
    exit 2
fi
count=$(echo "$devices" | wc -l)
logs=$build/gpu-logs
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$logs" && mkdir -p "$logs" || exit 1
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
: >"$work/rows"
failed=

# step "WHAT" COMMAND...: a row of the page; what it prints is kept in a log.
step() {
    what=$1 code=0
    shift
    log=$logs/$(echo "$what" | tr -c 'A-Za-z0-9\n' '-').log
    began=$(date +%s)
    "$@" >"$log" 2>&1 || code=$?
    took=$(($(date +%s) - began))
    if [ "$code" -eq 0 ]; then
        echo "passed: $what ($took s)"
        echo "| $what | passed | $took |" >>"$work/rows"
    else
        echo "FAILED: $what, exit status $code; the end of $log:"
        tail -n 15 "$log"
        failed="$failed; $what"
    fi
}

# each COMMAND...: in front of every program of kernel checks, all of them.
each() {
    bad=0 made=0
    for check in $checks; do
        [ "$check" != "$plans" ] || continue
        echo "== $check"
        "$@" "$check" || { echo "$check failed: exit status $?" && bad=1; }
        made=$((made + 1))
    done
    [ $made -gt 0 ] || { echo 'no program of kernel checks was built' && bad=1; }
    return $bad
}

# The program looks for its module beside itself.
random_plans() {
    cp "$plans" "$work/plans" || return 1
    [ ! -e "$build/executor/sbplan-cuda.so" ] || cp "$build/executor/sbplan-cuda.so" "$work/" || return 1
    SBP_TEST_PLANS=$plan_count "$work/plans"
}

# shellcheck disable=SC2086 # options are words
calibrated() {
    $mpirun -n "$count" "$calibrate" -n "$count" --backend nccl -o "$work/cluster.json" $calibration
}

# shellcheck disable=SC2086 # options are words
over_nccl() {
    "$sbplan" price "$root/configs/models/tiny-gpt.json" "$work/cluster.json" --tp 1 --zero 1 $tiny \
        --set global_batch=$((2 * count)) -o "$work/nccl.json" || return 1
    $mpirun -n "$count" "$nccl_run" "$work/nccl.json" --backend nccl --device cuda --steps 2 --verify
}

# timed MODEL: a run's JSON in MODEL.run.
# shellcheck disable=SC2086 # options are words
timed() {
    "$sbplan" price "$root/configs/models/$1.json" "$work/cluster.json" --devices 1 --tp 1 \
        --set precision=mixed $shape -o "$work/$1.json" || return 1
    "$run" "$work/$1.json" --device cuda --dtype bf16 --steps "$steps" --json >"$work/$1.run" || return 1
    cat "$work/$1.run"
    grep -q '"wall_s"' "$work/$1.run"
}

has_pytorch() {
    "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1
}

pytorch() {
    "$python" "$root/tests/gpu/pytorch_step.py" >"$work/pytorch" || return 1
    cat "$work/pytorch"
}

# --- the page ---

# median MODEL: ms of the steps behind those that warm up.
median() {
    sed -n 's/.*"wall_s":[[:space:]]*\([0-9.e+-]*\).*/\1/p' "$work/$1.run" | tail -n +$((warm_up + 1)) |
        sort -g | awk '{ at[NR] = $1 } END { if (NR > 0) printf "%.2f", 1000 * at[int((NR + 1) / 2)] }'
}

predicted() { # MODEL
    sed -n '/"predicted"/,/}/s/.*"step_s":[[:space:]]*\([0-9.e+-]*\).*/\1/p' "$work/$1.run" |
        awk '{ printf "%.2f", 1000 * $1 }'
}

of_pytorch() { # MODEL true|false
    found=
    [ ! -e "$work/pytorch" ] || found=$(grep "\"model\": \"$1\", \"compiled\": $2" "$work/pytorch" |
        sed -n 's/.*"median_s": \([0-9.e+-]*\).*/\1/p' | awk '{ printf "%.2f", 1000 * $1 }')
    echo "${found:-not installed}"
}

section() {
    echo '## ./dev gpu'
    echo
    echo "Made by \`./dev gpu\` on $(date -u +%Y-%m-%d) at commit $(git -C "$root" rev-parse --short HEAD), on"
    echo "$count x ${devices%%,*}, driver $(echo "$devices" | sed -n '1s/^.*, *//p');" \
        "$(sed -n 's/.*"library":[[:space:]]*"\([^"]*\)".*/\1/p' "$work/cluster.json" | head -n 1)."
    echo
    echo '| check | result | s |'
    echo '| --- | --- | --- |'
    cat "$work/rows"
    echo
    echo "Steps of one GPU in bf16 (\`$shape\`): the median of wall time behind the first $warm_up of $steps,"
    echo "beside the price by this calibration and PyTorch's (\`tests/gpu/pytorch_step.py\`)."
    echo
    echo '| step, ms | sbplan run | predicted | PyTorch, compiled | PyTorch, eager |'
    echo '| --- | --- | --- | --- | --- |'
    for model in $models; do
        echo "| $model | $(median "$model") | $(predicted "$model") | $(of_pytorch "$model" true) |" \
            "$(of_pytorch "$model" false) |"
    done
}

# The page is there as it was, or as it is to be, at any moment.
write_page() {
    sed '/^## \.\/dev gpu$/,$d' "$page" >"$page.new" && section >>"$page.new" && mv "$page.new" "$page"
}

step 'kernels beside their CPU twins' each env
for tool in memcheck racecheck synccheck; do
    step "kernels under $tool" each "$sanitizer" --tool "$tool" --error-exitcode 1
done
step "$plan_count random plans over threads, verified" random_plans
step "calibration over NCCL, $count GPU(s)" calibrated
step "a plan over NCCL, $count GPU(s), verified" over_nccl
for model in $models; do
    step "$model on one GPU" timed "$model"
done
if has_pytorch; then
    step 'PyTorch' pytorch
else
    echo 'left out: PyTorch is not installed, or sees no GPU'
fi
if [ -n "$failed" ]; then
    echo "FAILED:${failed#;}; $page stays as it is, logs lie in $logs"
    exit 1
fi
write_page || { echo "cannot write $page" && exit 1; }
echo "wrote $page"
