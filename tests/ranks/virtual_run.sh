#!/bin/sh
# Ranks that are killed or stopped on another host than that of rank 0, on two virtual hosts of two
# ranks: the run ends with status 1, and one message names the rank or for whom a rank waits.
#
# usage: virtual_run.sh SBPLAN SBPLAN-RUN CONFIGS MPIRUN
set -eu
sbplan=$(realpath "$1") run=$(realpath "$2") configs=$3 mpirun=$4
cluster=$(cd "$(dirname "$0")" && pwd)/virtual_cluster.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
cd "$folder"

fail() {
    echo "FAILED: $*: $(tail -n 5 out err)" >&2
    exit 1
}

"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
    -o plan.json >out 2>err || fail 'no plan'
# Each rank writes its process down before it becomes the program.
cat >rank.sh <<'END'
echo $$ >"$1/process.$OMPI_COMM_WORLD_RANK"
exec "$2" "$1/plan.json" --steps 1000000 --backend mpi --deadline 3
END

# One rank gets a signal once it trains; what is said of it, once.
strike() { # SIGNAL RANK TEXT
    rm -f process.* out err
    "$cluster" 2 2 1gbit "$mpirun" sh "$folder/rank.sh" "$folder" "$run" >out 2>err &
    launcher=$!
    tries=$((300 * ${SBP_TIMEOUT_SCALE:-1}))
    until grep -qs '^[1-9]' out; do
        kill -0 $launcher 2>/dev/null && [ $tries -gt 0 ] || break
        tries=$((tries - 1))
        sleep 0.1
    done
    ! grep -qs '^[1-9]' out || kill "-$1" "$(cat "process.$2")"
    status=0
    wait $launcher || status=$?
    [ $status -ne 77 ] || { cat out err && exit 77; }
    [ $status -ne 0 ] || fail "status 0 after $1 of rank $2"
    [ "$(grep -c "lost: .*$3" err)" -eq 1 ] || fail "after $1 of rank $2 not once \"$3\""
    sed -n "s/.*lost: /$1 of rank $2: /p" err
}
strike KILL 1 'rank 1 (host n0, stage 0) was killed'
strike KILL 3 'rank 3 (host n1, stage 0) was killed'
strike STOP 1 'rank 1 (host n0, stage 0) is stopped'
strike STOP 3 'rank [0-3] (host n[01], stage 0).*--deadline 3'
