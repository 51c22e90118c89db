#!/bin/sh
# `sbplan run --trace`: predicted and measured lanes of a stage have the same names, equally often, and
# as many micro-batches in flight; `sbplan explain --trace` of the same plan draws what is predicted.
# usage: run.sh SBPLAN SBPLAN-RUN CONFIGS CHECKER
set -u
sbplan=$(realpath "$1") run=$(realpath "$2") configs=$(realpath "$3") checker=$(realpath "$4")
command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
export SBPLAN_CONFIGS="$configs"

fail() {
    echo "run: $*"
    exit 1
}

# traced NAME PROCESSES OPTION...    processes of the timeline that are measured
traced() {
    name=$1 processes=$2
    shift 2
    "$sbplan" search tiny-gpt laptop-4 --runnable "$@" -o "$name.json" >/dev/null || fail "no plan $name"
    "$run" "$name.json" --backend threads --trace "$name.trace" >/dev/null || fail "no run $name"
    "$sbplan" explain "$name.json" --json >"$name.explained"
    "$sbplan" explain "$name.json" --trace "$name.predicted" >/dev/null || fail "no trace $name"
    python3 "$checker" --plan "$name.explained" "$name.trace" >"$name.lanes" || fail "trace $name"
    python3 "$checker" --plan "$name.explained" "$name.predicted" >"$name.alone" || fail "trace $name"
    grep '^predicted' "$name.lanes" | cmp -s - "$name.alone" || fail "$name: run and explain differ"
    [ "$(grep -c '^measured, rank' "$name.lanes")" -eq "$processes" ] || fail "$name: $(cat "$name.lanes")"
}

traced one 4
traced zero 4 --set pipeline=1 --set micro_batch=2 --set zero=3 --set recompute=full
for schedule in 1f1b gpipe; do
    traced $schedule 4 --set pipeline=2 --set micro_batch=2 --set schedule=$schedule --set clip_norm=0.5
done
traced four 4 --set pipeline=4 --set micro_batch=1
traced message-driven 4 --set pipeline=4 --set micro_batch=1 --set schedule=message-driven --set pipeline_limit=6

# Too many tasks for a file: one rank a stage.
traced many 1 --set pipeline=1 --set micro_batch=4 --set global_batch=2400

status=0
"$run" one.json --trace ./one.json >out 2>err || status=$?
[ $status -eq 2 ] && grep -q 'would overwrite the plan' err || fail 'the plan was overwritten'
exit 0
