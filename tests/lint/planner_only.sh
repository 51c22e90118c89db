#!/bin/sh
# The planner builds where there is neither MPI, BLAS nor cJSON, reads logs, and plans: the same bytes as
# SBPLAN, though nothing is optimised and, where there are two, another compiler built it.
# Usage: planner_only.sh ROOT SBPLAN OTHER_COMPILER
root=$1
sbplan=$(realpath "$2") || exit 99
if command -v "$3" >/dev/null; then
    CC=$3
    export CC
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# What pkg-config finds here is hidden: cJSON is built from the source that lies in the tree.
mkdir "$work/found"
PKG_CONFIG_LIBDIR=$work/found
PKG_CONFIG_PATH=
export PKG_CONFIG_LIBDIR PKG_CONFIG_PATH

if ! { meson setup "$work/build" "$root" -Dplanner_only=true -Dtests=disabled --buildtype=debug --wrap-mode=nodownload &&
    ninja -C "$work/build"; } >"$work/log" 2>&1; then
    cat "$work/log"
    exit 1
fi
program=$work/build/planner/sbplan
for one in "$program" "$work/build/calib/sbplan-fit"; do
    if readelf -d "$one" | grep NEEDED | grep -iE 'mpi|blas|cuda|cublas|nccl'; then
        echo "$one must not need these"
        exit 1
    fi
done
"$program" calibrate --from "$root/tests/golden/data/logs/job.log" || exit 1

# The plan of one command, by both programs.
compare() {
    "$program" "$@" -o "$work/one.json" >/dev/null && "$sbplan" "$@" -o "$work/two.json" >/dev/null &&
        [ -s "$work/one.json" ] && cmp "$work/one.json" "$work/two.json" && return
    echo "plans differ: sbplan $*"
    bad=1
}
bad=0
cp "$root/tests/golden/data/measured.json" "$root/tests/golden/data/curves.json" "$work"
cd "$work" || exit 99
for model in tiny-mlp tiny-gpt; do
    for cluster in laptop-4 measured.json curves.json; do
        compare search "$model" "$cluster"
        compare search "$model" "$cluster" --set boxing=path --set zero=3
        for algorithm in coordinate-descent metropolis-hastings random; do
            compare search "$model" "$cluster" --algorithm "$algorithm" --seed 4 \
                --max-evaluations 20000
        done
    done
done
compare search vgg-13 measured.json --set global_batch=48
compare search gpt2-small gcp-a100-2x16
exit $bad
