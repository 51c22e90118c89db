#!/bin/sh
# A rank that sends late is named, and nothing is where none does.
# usage: slow_rank.sh CALIBRATE LIBRARY MPIRUN FLAGS...
set -eu
calibrate=$1 library=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

measure() { # SLOW_RANK
    "$folder/mpirun" -x LD_PRELOAD="$library" -x SLOW_RANK="$1" -x SLOW_US=20000 "$calibrate" \
        -o "$folder/cluster.json" --fresh --collectives all-reduce --max-bytes 4K --runs 3 \
        --budget-s 10 >"$folder/out" 2>"$folder/err" || { cat "$folder/err" && exit 1; }
}

{
    echo '#!/bin/sh'
    printf 'exec'
    printf " '%s'" "$@"
    echo ' "$@"'
} >"$folder/mpirun"
chmod +x "$folder/mpirun"

for slow in 2 0; do
    measure $slow
    cat "$folder/out"
    grep -q "note: rank $slow (host .*) is slow: messages of" "$folder/out"
    [ "$(grep -c ' is slow' "$folder/out")" -eq 1 ]
    # Where a cluster file is read, the same stands in it.
    grep -q "\"rank $slow (host .*) is slow" "$folder/cluster.json"
done
