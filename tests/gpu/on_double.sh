#!/bin/sh
# The flow of on_device.sh over the stand-ins for GPUs: the page that it writes, and that no failed run
# changes it.
# usage: on_double.sh ROOT BUILD RUN NCCL-RUN CALIBRATE PLANS CHECK MPIRUN FLAGS...
set -eu
root=$1 build=$2 run=$3 nccl_run=$4 calibrate=$5 plans=$6 check=$7
shift 7
folder=$(mktemp -d)
export SBP_DOUBLE_RUN=$$
trap 'rm -rf "$folder" /dev/shm/nccl-double-$$-*' EXIT

complain() {
    echo "$*"
    cat "$folder/out" "$folder/page.md"
    exit 1
}

# script NAME LINE...: a program of this folder.
script() {
    name=$1
    shift
    printf '%s\n' '#!/bin/sh' "$@" >"$folder/$name"
    chmod +x "$folder/$name"
}

# Kernels of whole calibrations do nothing on the stand-in; the second time none is needed.
script smi 'echo "stand-in GPU, 580.1"; echo "stand-in GPU, 580.1"'
script sanitizer 'echo "$@" >>"'"$folder"'/sanitized"; [ "$2" != "${SBP_TEST_BAD_TOOL-}" ] || exit 3' \
    'shift 4; exec "$@"'
script calibrate 'while [ "$1" != -o ]; do shift; done' \
    '[ ! -e "'"$folder"'/kept.json" ] || exec cp "'"$folder"'/kept.json" "$2"' \
    'SBP_DOUBLE_KERNEL_S=0.1 "'"$calibrate"'" -n 2 --backend nccl "$@" || exit' \
    '[ "$OMPI_COMM_WORLD_RANK" -ne 0 ] || cp "$2" "'"$folder"'/kept.json"'
printf '# Page\n\nFound before.\n\n## ./dev gpu\n\nIt never ran on a GPU.\n' >"$folder/page.md"
cp "$folder/page.md" "$folder/before.md"
mkdir "$folder/build"

# STATUS [NAME=VALUE...]
runs() {
    status=$1 code=0
    shift
    env SBP_GPU_SBPLAN="$build/planner/sbplan" SBP_GPU_RUN="$run" SBP_GPU_NCCL_RUN="$nccl_run" \
        SBP_GPU_CALIBRATE="$folder/calibrate" SBP_GPU_CHECKS="$check $plans" SBP_GPU_PLANS="$plans" \
        SBP_GPU_SMI="$folder/smi" SBP_GPU_SANITIZER="$folder/sanitizer" SBP_GPU_PYTHON=false \
        SBP_GPU_MPIRUN="$mpirun" SBP_GPU_PLAN_COUNT=1 \
        SBP_GPU_CALIBRATION='--max-bytes 4K --runs 1 --budget-s 2' SBP_GPU_MODELS=tiny-gpt SBP_GPU_STEPS=7 \
        SBP_GPU_SHAPE="$tiny --set global_batch=2 --micro-batch 2" SBP_GPU_TINY="$tiny" "$@" \
        "$root/tests/gpu/on_device.sh" "$root" "$folder/build" "$folder/page.md" >"$folder/out" 2>&1 || code=$?
    [ $code -eq "$status" ] || complain "exit status $code, not $status: $*"
}

says() {
    grep -q -- "$2" "$1" || complain "no \"$2\" in $1"
}

unchanged() {
    cmp -s "$folder/page.md" "$folder/before.md" || complain 'the page is another'
}

tiny='--set layers=1 --set hidden=16 --set heads=2 --set sequence=8 --set vocab=32' mpirun="$*"
runs 2 SBP_GPU_SMI=false
says "$folder/out" 'finds no GPU'
unchanged

runs 0
for line in '^Found before' '^2 x stand-in GPU, driver 580.1; NCCL ' '^| kernels beside their CPU twins | passed ' \
    '^| kernels under racecheck | passed ' '^| 1 random plans over threads, verified | passed ' \
    '^| calibration over NCCL, 2 GPU(s) | passed ' '^| a plan over NCCL, 2 GPU(s), verified | passed ' \
    '^| tiny-gpt | [0-9.]* | [0-9.]* | not installed | not installed |'; do
    says "$folder/page.md" "$line"
done
! grep -q 'never ran' "$folder/page.md" || complain 'the old section stands'
says "$folder/build/gpu-logs/a-plan-over-NCCL--2-GPU-s---verified.log" '^verified: every gradient'
[ "$(wc -l <"$folder/sanitized")" -eq 3 ] || complain 'not three tools'

# What comes behind a check that fails is checked, too.
cp "$folder/page.md" "$folder/before.md"
runs 1 SBP_TEST_BAD_TOOL=racecheck
says "$folder/out" '^FAILED: kernels under racecheck, exit status 1; '
says "$folder/out" '^passed: tiny-gpt on one GPU '
says "$folder/out" '^FAILED: kernels under racecheck; .* stays as it is, logs lie in '
unchanged
