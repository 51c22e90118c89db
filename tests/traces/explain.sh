#!/bin/sh
# `sbplan explain --trace` of every schedule is a timeline whose counters reach what the plan says.
# usage: explain.sh SBPLAN CONFIGS CHECKER
set -u
sbplan=$(realpath "$1") configs=$(realpath "$2") checker=$(realpath "$3")
command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
export SBPLAN_CONFIGS="$configs"

fail() {
    echo "explain: $*"
    exit 1
}

# traced NAME HOW OPTION...    of a plan that is searched so: task by task or work by work
traced() {
    name=$1 how=$2
    shift 2
    "$sbplan" search "$@" -o "$name.json" >/dev/null || fail "no plan $name"
    "$sbplan" explain "$name.json" --json >"$name.explained"
    "$sbplan" explain "$name.json" --trace "$name.trace" >out || fail "no trace $name"
    grep -q "^wrote $name.trace, $how by $how$" out || fail "$name: $(tail -n 1 out), not $how by $how"
    python3 "$checker" --plan "$name.explained" "$name.trace" >"$name.lanes" || fail "trace $name"
}

gpt='tiny-gpt laptop-4 --set micro_batch=2'
traced one task tiny-gpt laptop-4
traced micro task $gpt --set pipeline=1
for schedule in 1f1b gpipe; do
    traced $schedule task $gpt --set pipeline=4 --set schedule=$schedule
done
traced zero-bubble task $gpt --set pipeline=4 --set schedule=zero-bubble
traced message-driven task $gpt --set pipeline=4 --set schedule=message-driven
traced interleaved task tiny-gpt laptop-4 --set micro_batch=2 --set layers=8 --set pipeline=2 \
    --set schedule=interleaved --set chunks=2
for schedule in cdp-v1 cdp-v2; do
    traced $schedule work $gpt --set pipeline=4 --set schedule=$schedule --set allow_delayed_gradients=true
done
grep -q 'step 1' cdp-v1.trace || fail 'one step of cdp-v1'
traced offload task $gpt --set pipeline=2 --set offload=true --set bucket_parameters=1k \
    --set cluster.device.host_memory_bytes=1G --set cluster.device.host_link_bytes_per_s=1000000000
grep -q 'copy [1-9]' offload.lanes || fail 'no copies'
grep -q '"copy-in {1}"' offload.trace || fail 'no second bucket'
grep -q 'send to next 4.*send to previous 4' 1f1b.lanes || fail 'no messages'

# Where communication hides, tasks one after the other are not the step.
traced hidden work $gpt --set pipeline=2 --runtime megatron-core

# A large step: some of the stages, the first and the last among them.
"$sbplan" search tiny-gpt laptop-4 --set layers=16 --set pipeline=4 --set micro_batch=1 \
    --set global_batch=8192 --set schedule=1f1b -o large.json >/dev/null || fail 'no plan large'
"$sbplan" explain large.json --trace large.trace >out || fail 'no trace large'
grep -q '^wrote large.trace, work by work, [23] of 4 stages$' out || fail "$(tail -n 1 out)"
python3 "$checker" large.trace >large.lanes || fail 'trace large'
grep -q '^predicted, stage 0' large.lanes && grep -q '^predicted, stage 3' large.lanes || fail 'stages'
[ "$(wc -c <large.trace)" -lt 40000000 ] || fail 'a large file'

# refuses TEXT COMMAND...
refuses() {
    said=$1
    shift
    status=0
    "$sbplan" "$@" >out 2>err || status=$?
    [ $status -eq 2 ] && [ ! -s out ] || fail "$*: exit status $status"
    grep -q "$said" err || fail "$*: $(cat err)"
}
refuses 'would overwrite the plan' explain one.json --trace ./one.json
refuses 'none/x: cannot be written' explain one.json --trace none/x
"$sbplan" search tiny-gpt laptop-4 --set pipeline=1 --set micro_batch=4 --set global_batch=524288 \
    -o long.json >/dev/null || fail 'no plan long'
refuses 'a stage of 131072 micro-batches makes a file of more than' explain long.json --trace long.trace

# The checker finds what is wrong.
spoil() { # EDIT
    sed "$1" 1f1b.trace >bad.trace
    cmp -s 1f1b.trace bad.trace && fail "nothing changed by $1"
    ! python3 "$checker" --plan 1f1b.explained bad.trace >/dev/null 2>&1 || fail "not found: $1"
}
spoil '/"name":"backward \[3\]"/s/"ts":[0-9.]*/"ts":0.001/'
spoil '0,/"thread_name"/{/"thread_name"/d}'
spoil '/"process_name"/d'
spoil '0,/"micro-batches":0/{/"micro-batches":0/d}'
spoil 's/"bytes":/"bytes":1/'
spoil '0,/"ts":/s/"ts":[0-9.]*/"ts":-1/'
spoil '$d'
exit 0
