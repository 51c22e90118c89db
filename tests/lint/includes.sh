#!/bin/sh
# The order of the folders: which may include which. A program that plans must not depend on
# running, and within a folder what decides must not depend on what is decided with it.
# Usage: includes.sh ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
bad=0
code=$(sources '*.[ch]' '*.cu' '*.cuh' '*.cpp' '*.hpp')
count_sources "$code"

# Every include of ours: FILE INCLUDED, a pair a line.
# shellcheck disable=SC2086 # paths are words
pairs=$(grep -oE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]+"' $code |
    sed -E 's/^([^:]+):.*"([^"]+)"$/\1 \2/')

# A folder, then what it may include besides itself. `x` stands for x and its rooms, seen from another
# folder; a room of x names the rooms that it sees, `x/*` is all of them. A folder without a rule is
# refused: whoever adds a room says where it stands.
rules='
base base/math
base/math base
base/json base base/math
costmodel/cluster base
costmodel/layout base costmodel/cluster
costmodel/model base costmodel/cluster costmodel/layout
costmodel/timeline base
costmodel/program base costmodel/cluster costmodel/layout costmodel/model costmodel/timeline
planner base planner/*
planner/problem base planner
planner/reduction base planner planner/problem
planner/solvers base planner planner/problem planner/reduction
planner/dual base planner planner/problem planner/solvers
planner/plan base costmodel planner planner/problem planner/solvers
planner/paths base costmodel planner planner/problem planner/solvers planner/plan
planner/space base costmodel planner planner/problem planner/plan planner/paths
planner/pricing base costmodel planner planner/problem planner/plan planner/paths planner/space
planner/bounds base costmodel planner planner/problem planner/plan planner/paths planner/space planner/pricing
planner/labels base costmodel planner planner/problem planner/plan planner/paths planner/space planner/pricing
planner/inner base costmodel planner planner/problem planner/plan planner/paths planner/space planner/pricing planner/bounds planner/labels
planner/verify base costmodel planner/plan planner/inner
planner/outer base costmodel planner planner/problem planner/solvers planner/plan planner/paths planner/space planner/pricing planner/bounds planner/labels planner/inner
planner/degrees base costmodel planner/problem planner/plan
planner/validate base costmodel planner/plan planner/degrees planner/inner planner/outer
planner/configs base costmodel planner/plan planner/validate
planner/import base costmodel
planner/report base costmodel planner planner/problem planner/plan planner/paths planner/space planner/inner
planner/export base costmodel planner planner/problem planner/plan planner/degrees planner/inner planner/outer planner/validate planner/report
planner/page base costmodel planner planner/problem planner/plan planner/paths planner/space planner/inner planner/report
planner/cli base costmodel planner planner/problem planner/plan planner/degrees planner/export planner/paths planner/space planner/inner planner/configs
planner/commands base costmodel planner/*
kernels base
kernels/cpu base kernels
kernels/cuda base kernels kernels/cuda/host
kernels/cuda/host base kernels/cuda
executor/device base kernels
executor/comm base costmodel/program kernels executor/device
executor/actor base executor/device executor/comm
executor/gpu base kernels executor/device executor/comm
executor/rank base costmodel kernels executor/device executor/comm
executor/verify base costmodel kernels executor/device executor/comm executor/rank
executor/run base costmodel kernels executor/device executor/comm executor/actor executor/rank executor/verify
executor base costmodel planner/plan kernels executor/*
calib/samples base costmodel/cluster
calib/logs base costmodel/cluster calib/samples
calib/fit base costmodel/cluster calib/samples
calib/output base costmodel/cluster calib/samples calib/logs calib/fit
calib/measure base costmodel/cluster kernels executor/device executor/comm executor/gpu calib/samples calib/output
calib base costmodel/cluster kernels executor/comm calib/*
'
printf '%s\n' "$pairs" | awk -v rules="$rules" '
function folder_of(path) {
    sub(/\/[^\/]*$/, "", path)
    return path
}
function top_of(path) {
    sub(/\/.*/, "", path)
    return path
}
function lists(from, word) {
    return index(allowed[from], " " word " ") > 0
}
BEGIN {
    n = split(rules, line, "\n")
    for (i = 1; i <= n; i++) {
        if (line[i] == "")
            continue
        folder = line[i]
        sub(/ .*/, "", folder)
        allowed[folder] = " " line[i] " "
    }
}
{
    from = folder_of($1)
    to = folder_of($2)
    top = top_of(to)
    if (!(from in allowed))
        print $1 " lies in a folder that has no rule in tests/lint/includes.sh"
    else if (from != to && !lists(from, to) && !lists(from, top "/*") &&
             (top == top_of(from) || !lists(from, top)))
        print $1 " may not include " $2 " (" from " includes" allowed[from] ")"
    else
        next
    bad = 1
}
END { exit bad }' || bad=1

# Headers that a folder keeps to itself end in _priv.h.
found=$(printf '%s\n' "$pairs" | awk '
$2 ~ /_priv\.hp*$/ {
    from = $1
    to = $2
    sub(/\/[^\/]*$/, "", from)
    sub(/\/[^\/]*$/, "", to)
    if (from != to)
        print $1 " includes " $2
}')
if [ -n "$found" ]; then
    printf 'these headers are of their own folders alone:\n%s\n' "$found"
    bad=1
fi

# Headers of the libraries that only clusters have, and who may include them: what runs on a laptop
# needs neither MPI nor BLAS nor CUDA.
# shellcheck disable=SC2086 # paths are words
found=$(grep -nE 'include *<(mpi|cblas|cuda|cublas|nccl)[^>]*>' $code |
    grep -vE '^(executor/comm/comm_mpi(_start|_device)?\.c|executor/gpu/[^:]*|calib/measure/(compute|fp8)_cuda\.c|kernels/cpu/[^:]*|kernels/cuda/gpu\.cuh):')
if [ -n "$found" ]; then
    printf 'these need no such header:\n%s\n' "$found"
    bad=1
fi
exit $bad
