#!/bin/sh
# The planner builds where there is neither MPI nor BLAS, and plans.
# Usage: planner_only.sh ROOT
root=$1
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# Of what pkg-config finds here, show the build cJSON alone.
folder=$(pkg-config --variable=pcfiledir libcjson) || exit 77
mkdir "$work/found"
cp "$folder/libcjson.pc" "$work/found/"
PKG_CONFIG_LIBDIR=$work/found
PKG_CONFIG_PATH=
export PKG_CONFIG_LIBDIR PKG_CONFIG_PATH

if ! { meson setup "$work/build" "$root" -Dplanner_only=true -Dtests=disabled --buildtype=debug &&
    ninja -C "$work/build"; } >"$work/log" 2>&1; then
    cat "$work/log"
    exit 1
fi
program=$work/build/planner/sbplan
if readelf -d "$program" | grep NEEDED | grep -iE 'mpi|blas|cuda|cublas|nccl'; then
    echo "sbplan must not need these"
    exit 1
fi
"$program" search tiny-gpt laptop-4 -o "$work/plan.json" && [ -s "$work/plan.json" ]
