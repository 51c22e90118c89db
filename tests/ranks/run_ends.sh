#!/bin/sh
# How a run ends that is not let end well: each time there is a reason on standard error, and the exit
# status is the one that docs/run.md lists.
# usage: run_ends.sh SBPLAN CONFIGS WORD...    words: mpi (there is mpirun), limits (of address space)
set -u
sbplan=$(realpath "$1") configs=$2
shift 2
words=" $* "
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99

fail() {
    echo "run_ends: $*"
    [ ! -s err ] || cat err
    exit 1
}

# ends STATUS TEXT-OF-ERR COMMAND...
ends() {
    wanted=$1 said=$2
    shift 2
    status=0
    timeout $((60 * ${SBP_TIMEOUT_SCALE:-1})) "$@" >out 2>err || status=$?
    [ $status -eq "$wanted" ] || fail "$*: exit status $status, not $wanted"
    [ -z "$said" ] || grep -q "$said" err || fail "$*: no \"$said\""
}

plan() { # NAME OPTION...
    name=$1
    shift
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" "$@" \
        -o "$name.json" >/dev/null || fail "no plan $name"
}
plan plan
# The step before the loss is no number has logits of 1e8, whose round-off bounds of first order do not
# hold under every plan; they do under this one.
plan odd --set 'optimizer={"name":"sgd","learning_rate":1000000}' --set zero=0
run="$sbplan run plan.json"
long='--steps 1000000'

# A slow machine gets more time to finish a step.
interrupt() { # STATUS SIGNAL TEXT COMMAND...
    wanted=$1 signal=$2 said=$3
    shift 3
    for seconds in 1 8 64; do
        status=0
        timeout --foreground --preserve-status -s "$signal" $seconds "$@" >out 2>err || status=$?
        ! grep -q "$said" err || break
    done
    [ $status -eq "$wanted" ] || fail "$*: exit status $status after $signal, not $wanted"
    grep -q "$said" err || fail "$*: no \"$said\" after $signal"
}

# The parent's child, or its child's child, that is called so; the first by number but one.
child_of() { # PARENT NAME WHICH
    for stat in /proc/[0-9]*/stat; do
        cat "$stat" 2>/dev/null
    done | awk -v parent="$1" -v name="($2)" '$2 == name && $4 == parent { print $1 }' |
        sort -n | sed -n "$3p"
}

# Kills mpirun (WHICH 0), or a rank of it, when it trains.
kill_one() { # STATUS TEXT SIGNAL WHICH
    $run --backend mpi $long >out 2>err &
    process=$!
    found=
    for attempt in $(seq $((100 * ${SBP_TIMEOUT_SCALE:-1}))); do
        sleep 0.1
        found=$(child_of $process mpirun 1)
        [ -z "$found" ] || [ -z "$(child_of "$found" sbplan-run 4)" ] || break
    done
    [ $attempt -gt 0 ] && [ -n "$found" ] || fail 'no mpirun'
    [ "$4" -eq 0 ] || found=$(child_of "$found" sbplan-run "$4")
    sleep 1
    kill "-$3" "$found"
    status=0
    wait $process || status=$?
    [ $status -eq "$1" ] || fail "kill -$3 of $4: exit status $status, not $1"
    grep -q "$2" err || fail "kill -$3 of $4: no \"$2\""
}

ending() { # OPTION...
    ends 2 'standard output: No space left' sh -c "$run $* --json >/dev/full"
    ends 2 'standard output: Bad file' sh -c "$run $* --json >&-"
    ends 2 'none/trace.json: cannot be written' $run "$@" $long --trace none/trace.json
    interrupt 130 INT '[1-9][0-9]* of 1000000 steps are finished' $run "$@" $long
    interrupt 143 TERM '[1-9][0-9]* of 1000000 steps are finished' $run "$@" $long
    interrupt 129 HUP '[1-9][0-9]* of 1000000 steps are finished' $run "$@" $long
    interrupt 143 TERM '[1-9][0-9]* of [0-9]* cells are measured and kept' "$sbplan" calibrate \
        ${*:---backend threads} -n 4 --budget-s 600 -o cluster.json
    [ ! -e cluster.json ] || fail 'an interrupted calibration wrote a cluster file'
    rm -f cluster.samples.jsonl

    # A loss that is no number is a failed verification; the first step that has one is named.
    ends 1 '' "$sbplan" run odd.json "$@" --steps 6
    grep -q '^FAILED: step [1-6]: the loss is no finite number; --verify' out || fail "$(cat out)"
    ends 1 '' "$sbplan" run odd.json "$@" --steps 6 --verify
    grep -q '^verification FAILED: step [1-6]: .*nan' out || fail "$(cat out)"
    ends 1 '' "$sbplan" run odd.json "$@" --steps 6 --json
    grep -q '"not_finite"' out || fail "$(cat out)"
}

ending
case $words in
*' mpi '*)
    ending --backend mpi
    kill_one 143 'mpirun ended without a result, as it does when it is interrupted' TERM 0
    kill_one 137 'mpirun was ended by signal 9' KILL 0
    kill_one 137 'a rank was ended by signal 9' KILL 2
    ;;
esac

# Of address space, where ranks would wait for it for ever; and of stacks, with which no rank starts.
case $words in
*' limits '*)
    for kib in 100000 300000 600000; do
        ends 2 '4 ranks: need .* of address space .*, the limit is' sh -c "ulimit -v $kib; $run"
    done
    for kib in 100000 700000 1100000; do
        ends 2 'need .* of address space\|out of memory' sh -c "ulimit -v $kib; exec \"\$@\"" sh \
            "$sbplan" calibrate --backend threads -n 4 --budget-s 4 -o cluster.json
    done
    ends 0 '' sh -c "ulimit -v 1200000; $run"
    ends 2 'cannot start rank' sh -c "ulimit -v 3000000; ulimit -s 900000; $run"
    case $words in
    *' mpi '*) ends 2 'needs 448 MiB of address space' sh -c "ulimit -v 400000; $run --backend mpi" ;;
    esac
    ;;
esac
exit 0
