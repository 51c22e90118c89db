#!/bin/sh
# `sbplan bench` measures the plans that `search --top` wrote in turns and names the best; what cannot
# be compared is refused by name before any step.
# usage: bench.sh SBPLAN SBPLAN-RUN CONFIGS [MPIRUN FLAGS...]
set -u
sbplan=$(realpath "$1") run=$(realpath "$2") configs=$(realpath "$3")
shift 3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
export SBPLAN_CONFIGS="$configs"

fail() {
    echo "bench: $*"
    cat out err 2>/dev/null
    exit 1
}

# expect STATUS COMMAND...
expect() {
    wanted=$1
    shift
    status=0
    timeout $((100 * ${SBP_TIMEOUT_SCALE:-1})) "$@" >out 2>err || status=$?
    [ $status -eq "$wanted" ] || fail "$*: exit status $status, not $wanted"
}

plan() { # NAME MODEL OPTION...
    name=$1 model=$2
    shift 2
    "$sbplan" search "$model" laptop-4 --runnable "$@" -o "$name.json" >/dev/null || fail "no plan $name"
}
plan plan tiny-gpt --top 3
plan stages tiny-gpt --set pipeline=2 --set micro_batch=2
plan twice tiny-gpt --set global_batch=16
plan two tiny-gpt --devices 2
plan other tiny-mlp
plan odd tiny-gpt --set 'optimizer={"name":"sgd","learning_rate":1000000}' --set zero=0
"$sbplan" search tiny-gpt laptop-4 --set offload=true --set chunk_factor=2 --set zero=1 --set pipeline=1 \
    --set cluster.device.host_link_bytes_per_s=1e10 --set cluster.device.host_memory_bytes=1e10 \
    -o sums.json >/dev/null || fail 'no plan sums'

# The plans of --top, as they lie there; each has its head, and measured stands beside predicted.
expect 0 "$sbplan" bench plan.json plan-2.json plan-3.json --steps 1
[ "$(grep -c '^plan.*json: 4 ranks, f32$' out)" -eq 3 ] || fail 'no head of each plan'
for row in 'measured, replay' 'measured, wall' predicted 'measured / predicted'; do
    [ "$(grep -c "^  $row  " out)" -eq 3 ] || fail "no row \"$row\" of each plan"
done
grep -q '99 % interval' out || fail 'no interval'
[ "$(grep -c '^best measured: plan' out)" -eq 1 ] || fail 'no best plan'

# The prediction is the run's and the arena's bytes are the plan's; batches and ranks may differ.
"$run" stages.json --json >run.out || fail 'no run'
expect 0 "$sbplan" bench stages.json twice.json two.json --rounds 2 --warmup 0 --json
predicted=$(sed -n '/"predicted"/,/}/s/.*"step_s":[^0-9]*\([^,]*\),*/\1/p' run.out)
[ -n "$predicted" ] && grep -q "\"replay_s\":.*$predicted" out || fail "the run predicts $predicted"
grep -q '"confidence":.*null' out || fail 'an interval of two rounds'
[ "$(grep -c '"arena_bytes"' out)" -eq 6 ] || fail 'no memory'
grep -q '"tokens":.*512' out || fail 'no batch'
expect 0 "$sbplan" bench stages.json --rounds 1
grep -q 'too few rounds' out && ! grep -q 'best measured' out || fail 'a best plan of one'

# Refused before any step, by name.
refuses() { # TEXT COMMAND...
    said=$1
    shift
    expect 2 "$@"
    grep -q "$said" err && [ ! -s out ] || fail "$*: no \"$said\""
}
refuses 'other.json: trains tiny-mlp' "$sbplan" bench plan.json other.json
refuses 'sums.json: plan: parallel: chunk_factor: sums over shards beside the optimizer is searched' \
    "$sbplan" bench plan.json sums.json
refuses 'none.json: cannot be opened' "$sbplan" bench plan.json none.json
"$sbplan" search tiny-gpt laptop-4 --runnable --set global_batch=2048 --set 'cluster.levels[0].size=2048' \
    --set pipeline=1 --time-limit 5 -o many.json >/dev/null || fail 'no plan of 2,048 ranks'
refuses 'many.json: plan is for 2048 ranks, the threads backend runs 1024' "$sbplan" bench plan.json many.json
refuses 'bench measures over threads and mpi' "$sbplan" bench plan.json --backend nccl
refuses 'rounds: "0" is not legal' "$sbplan" bench plan.json --rounds 0
refuses 'are of --bench' "$run" plan.json --rounds 3
refuses 'no --verify, no --trace' "$run" --bench plan.json --trace trace.json
refuses 'one plan too many' "$run" plan.json plan-2.json

# A loss that is no number is told, and the other plan is measured all the same.
expect 1 "$sbplan" bench odd.json plan.json --rounds 1 --steps 6
grep -q '^FAILED: odd.json: step [1-7]: the loss' out || fail 'a loss that is no number'
grep -q '^plan.json: 4 ranks, f32$' out || fail 'no other plan'
grep -q '^best measured: plan.json' out || fail 'a plan without times is best'

# Each plan runs in its own precision.
plan half tiny-gpt --set precision=mixed
expect 0 "$sbplan" bench half.json plan.json --rounds 1
grep -q '^half.json: 4 ranks, bf16$' out && grep -q '^plan.json: 4 ranks, f32$' out || fail 'one precision'

status=0
timeout --foreground --preserve-status -s INT 8 "$sbplan" bench plan.json plan-2.json --rounds 100000 \
    >out 2>err || status=$?
[ $status -eq 130 ] && grep -q ' of 800000 steps are finished' err || fail "exit status $status after INT"

[ $# -gt 0 ] || exit 0
expect 0 "$@" -n 4 "$run" --bench plan.json stages.json --rounds 8 --steps 1
grep -q '^best measured: ' out || fail 'no best plan over mpi'
refuses 'two.json: is for 2 ranks, plan.json for 4' "$@" -n 4 "$run" --bench plan.json two.json
refuses 'plan is for 4 ranks, 3 are running' "$@" -n 3 "$run" --bench plan.json
# One process that has no plan, or other ones, ends all of them.
cat >odd.sh <<'END'
plan=$2
[ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" != 2 ] || plan=$3
exec "$1" --bench "$plan" --backend mpi --rounds 2
END
refuses 'none.json: cannot be opened' "$@" -n 4 sh odd.sh "$run" plan.json none.json
refuses 'rank 2 has another plan' "$@" -n 4 sh odd.sh "$run" plan.json stages.json
exit 0
