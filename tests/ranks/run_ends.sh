#!/bin/sh
# How a run ends that is not let end well: each time there is a reason on standard error, and the exit
# status is the one that docs/run.md lists.
# usage: run_ends.sh SBPLAN CONFIGS WORD...
# words: threads, mpi (backends), limits (of address space), lost (ranks that are killed or stopped)
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
"$sbplan" price "$configs/models/gpt3-175b.json" "$configs/clusters/laptop-4.json" --tp 4 \
    --set cluster.device.memory_bytes=10T --set global_batch=4 --set sequence=64 -o large.json >/dev/null ||
    fail 'no plan large'
# Two stages that are in two steps at a time.
plan cyclic --set pipeline=2 --set micro_batch=4 --set schedule=cdp-v2 --set allow_delayed_gradients=true
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

# Sends a signal to mpirun (WHICH 0), or a rank of it, when it trains; one message says so.
kill_one() { # STATUS TEXT SIGNAL WHICH OPTION...
    wanted=$1 said=$2 signal=$3 which=$4
    shift 4
    $run --backend mpi $long "$@" >out 2>err &
    process=$!
    found=
    for attempt in $(seq $((100 * ${SBP_TIMEOUT_SCALE:-1}))); do
        sleep 0.1
        found=$(child_of $process mpirun 1)
        [ -z "$found" ] || ! grep -q '^[1-9]' out || break
    done
    [ -n "$found" ] && grep -q '^[1-9]' out || fail 'no mpirun, or no step'
    [ "$which" -eq 0 ] || found=$(child_of "$found" sbplan-run "$which")
    kill "-$signal" "$found"
    status=0
    wait $process || status=$?
    [ $status -eq "$wanted" ] || fail "kill -$signal of $which: exit status $status, not $wanted"
    [ "$(grep -c "$said" err)" -eq 1 ] || fail "kill -$signal of $which: not once \"$said\""
}

# What an interrupted run printed: a whole object of its finished steps, or a row for each. Steps go on
# between the word and the end, which mpirun brings late.
has_steps() { # what it said of them is in err
    steps=$(sed -n 's/.*: \([0-9]*\) of 1000000 steps are finished.*/\1/p' err)
    if grep -q '^{' out; then
        [ "$(tail -n 1 out)" = '}' ] || fail "half an object: $(tail -n 3 out)"
        grep -q '"stopped":' out || fail 'a whole run'
        found=$(grep -c '"replay_s"' out)
        [ "$found" -le $((steps + 1)) ] || fail "$found steps, $steps are said"
    else
        found=$(grep -c '^[1-9][0-9]*  ' out)
    fi
    [ "$found" -ge "$steps" ] || fail "$found steps, $steps are said"
}

ending() { # OPTION...
    ends 2 'standard output: No space left' sh -c "$run $* --json >/dev/full"
    ends 2 'standard output: Bad file' sh -c "$run $* --json >&-"
    ends 2 'none/trace.json: cannot be written' $run "$@" $long --trace none/trace.json
    interrupt 130 INT '[1-9][0-9]* of 1000000 steps are finished' $run "$@" $long
    has_steps
    interrupt 130 INT '[1-9][0-9]* of 1000000 steps are finished' $run "$@" $long --json
    has_steps
    interrupt 130 INT '[1-9][0-9]* of 1000000 steps are finished' "$sbplan" run cyclic.json "$@" $long
    has_steps
    interrupt 143 TERM '[1-9][0-9]* of 1000000 steps are finished' $run "$@" $long
    interrupt 129 HUP '[1-9][0-9]* of 1000000 steps are finished' $run "$@" $long
    interrupt 143 TERM '[1-9][0-9]* of [0-9]* cells are measured and kept' "$sbplan" calibrate \
        ${*:---backend threads} -n 4 --budget-s 600 -o cluster.json
    [ ! -e cluster.json ] || fail 'an interrupted calibration wrote a cluster file'
    rm -f cluster.samples.jsonl

    # A loss that is no number is a failed verification: the step is the last, its layer is named.
    ends 1 '' "$sbplan" run odd.json "$@" --steps 6
    grep -q '^FAILED: layer block0[.a-z]*: its output holds NaN or infinity (step [1-6], rank [0-3]); the loss' out ||
        fail "$(cat out)"
    [ "$(grep -c '^[1-9]  ' out)" -eq "$(sed -n 's/^FAILED.*(step \([1-6]\).*/\1/p' out)" ] || fail "$(cat out)"
    ends 1 '' "$sbplan" run odd.json "$@" --steps 6 --verify
    grep -q '^verification FAILED: step [1-6]: .*nan' out || fail "$(cat out)"
    ends 1 '' "$sbplan" run odd.json "$@" --steps 6 --json
    grep -q '"not_finite"' out && grep -q '"layer":[[:space:]]*"block0' out || fail "$(cat out)"

    # Memory that no machine has, and what verification adds to it.
    ends 2 'run: 4 ranks on host .* need [0-9.]* TiB of memory, .* are free\|rank 0: 4 ranks on host' \
        "$sbplan" run large.json "$@"
    ends 2 'need [0-9.]* TiB of memory ([0-9.]* TiB of it to verify; full takes the most, sampled less, shrunk the least), .* are free' \
        "$sbplan" run large.json "$@" --verify
    ends 2 'deadline: "0" is not legal' $run "$@" --deadline 0
}

# A run that is stopped as a whole, and one whose reader takes no rows, go on when they may.
pauses() { # HOW COMMAND...: the first step's row is in `out` before the pause
    how=$1
    shift
    "$@" 2>err &
    process=$!
    sleep 2
    [ "$how" != stop ] || { kill -STOP $process && sleep 4 && kill -CONT $process; }
    sleep 4
    kill -INT $process 2>/dev/null
    status=0
    wait $process || status=$?
    [ $status -eq 130 ] || fail "$how: exit status $status, not 130"
}

unread() {
    mkfifo rows
    sleep 60 <>rows &
    reader=$!
    pauses full sh -c "exec $run $long --deadline 2 >rows"
    kill $reader
}

case $words in
*' threads '*)
    ending
    pauses stop sh -c "exec $run $long --deadline 2 >out"
    unread
    ;;
esac
case $words in
*' mpi '*)
    ending --backend mpi
    ends 2 'needs 448 MiB of address space' sh -c "ulimit -v 400000; $run --backend mpi"
    ;;
esac

# mpirun itself; a rank, whichever it is, of which another one says so; one alone has mpirun's word.
case $words in
*' lost '*)
    kill_one 143 'mpirun ended without a result, as it does when it is interrupted' TERM 0
    kill_one 137 'mpirun was ended by signal 9' KILL 0
    waits='at step [1-9].*; rank [0-3] (host .*, stage 0) is at step .*waits for rank'
    for which in 1 3; do
        rank="rank $((which - 1)) (host .*, stage 0)"
        kill_one 1 "lost: $rank was killed .* $waits" KILL $which
        kill_one 1 "lost: $rank is stopped $waits.* --deadline 3" STOP $which --deadline 3
    done
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" --devices 1 \
        -o one.json >/dev/null || fail 'no plan of one rank'
    run="$sbplan run one.json"
    kill_one 1 'lost: a rank was ended by signal 9' KILL 1
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
    ;;
esac
exit 0
