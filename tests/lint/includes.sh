#!/bin/sh
# The order of the folders: which may include which. A program that plans must not depend on
# running, and within a folder what decides must not depend on what is decided with it.
# Usage: includes.sh ROOT
. "$(dirname "$0")/sources.sh"
cd "$1" || exit 99
bad=0
code=$(sources '*.[ch]')
count_sources "$code"

# Every include of ours: FILE INCLUDED, a pair a line.
# shellcheck disable=SC2086 # paths are words
pairs=$(grep -oE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]+"' $code |
    sed -E 's/^([^:]+):.*"([^"]+)"$/\1 \2/')

# A folder, then what it may include besides itself. The longest folder that holds a file counts, for
# the file as for what it includes.
rules='
base
costmodel/cluster base
costmodel/layout base costmodel/cluster
costmodel/model base costmodel/cluster costmodel/layout
costmodel/timeline base
costmodel/program base costmodel/cluster costmodel/layout costmodel/model costmodel/timeline
planner/problem base
planner/plan base costmodel planner/problem
planner/paths base costmodel planner/problem planner/plan
planner/space base costmodel planner/problem planner/plan planner/paths
planner/pricing base costmodel planner/problem planner/plan planner/paths planner/space
planner/bounds base costmodel planner/problem planner/plan planner/paths planner/space planner/pricing
planner/labels base costmodel planner/problem planner/plan planner/paths planner/space planner/pricing
planner/inner base costmodel planner/problem planner/plan planner/paths planner/space planner/pricing planner/bounds planner/labels
planner/verify base costmodel planner/plan planner/inner
planner/outer base costmodel planner/problem planner/plan planner/paths planner/space planner/pricing planner/bounds planner/labels planner/inner
planner/import base costmodel
planner/cli base costmodel planner
planner/report base costmodel planner
planner/commands base costmodel planner
planner base costmodel planner
kernels base
executor/device base kernels
executor/comm base costmodel kernels executor/device
executor/gpu base costmodel kernels executor/device executor/comm
executor/rank base costmodel kernels executor/device executor/comm
executor/verify base costmodel kernels executor/device executor/comm executor/rank
executor base costmodel planner/plan kernels executor
calib/samples base costmodel
calib/logs base costmodel calib/samples
calib/fit base costmodel calib/samples
calib/output base costmodel calib/samples calib/logs calib/fit
calib/measure base costmodel kernels executor calib/samples calib/output
calib base costmodel kernels executor calib
'
printf '%s\n' "$pairs" | awk -v rules="$rules" '
function room(path,    i, best) {
    best = ""
    for (i in allowed)
        if (index(path, i "/") == 1 && length(i) > length(best))
            best = i
    return best
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
    from = room($1)
    to = room($2)
    if ($2 == "planner/limits.h" && $1 ~ /^planner\//)
        next
    whole = to
    sub(/\/.*/, "", whole)
    if (from == "")
        print $1 " lies in no folder that has a rule"
    else if (!index(allowed[from], " " to " ") && !index(allowed[from], " " whole " "))
        print $1 " may not include " $2 " (" from " includes" allowed[from] ")"
    else
        next
    bad = 1
}
END { exit bad }' || bad=1

# Headers that a folder keeps to itself end in _priv.h.
found=$(printf '%s\n' "$pairs" | awk '
$2 ~ /_priv\.h$/ {
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

# What runs on a laptop includes neither MPI nor BLAS nor CUDA.
folders='base costmodel planner'
code=$(sources '*.[ch]')
# shellcheck disable=SC2086 # paths are words
found=$(grep -nE 'include *<(mpi|cblas|cuda|cublas|nccl)[^>]*>' $code)
if [ -n "$found" ]; then
    printf 'the planner needs no such header:\n%s\n' "$found"
    bad=1
fi
exit $bad
