#!/bin/sh
# A searched plan runs and verifies on MPI ranks, and is refused on another number of them.
# usage: run_mpi.sh SBPLAN SBPLAN-RUN SBPLAN-CALIBRATE CONFIGS MPIRUN FLAGS...
set -eu
sbplan=$1 run=$2 calibrate=$3 configs=$4
shift 4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CUDA_VISIBLE_DEVICES= # what there is of GPUs is refused alike

"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
    -o "$folder/plan.json" >/dev/null
"$@" -n 4 "$run" "$folder/plan.json" --backend mpi --verify --steps 2 --trace "$folder/trace.json" \
    >"$folder/out"
grep -q '^verified' "$folder/out"
test -s "$folder/trace.json"
"$@" -n 4 "$run" "$folder/plan.json" --backend mpi --json >"$folder/out"
grep -q '"ranks_per_host":[[:space:]]*4' "$folder/out"

# Micro-batches one after the other, states in shards, work done once more, a norm over all shards.
for level in 1 2 3; do
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
        --set pipeline=1 --set micro_batch=2 --set zero=$level --set recompute=full --set clip_norm=0.5 \
        -o "$folder/cut.json" >/dev/null
    "$@" -n 4 "$run" "$folder/cut.json" --backend mpi --verify --steps 2 --check-collectives \
        --trace "$folder/cut-trace.json" >"$folder/out"
    grep -q '^verified' "$folder/out"
    grep -q '\[3\]' "$folder/cut-trace.json" # the last micro-batch
done

# Products by panels, over grids of 2 x 2 and of 3 x 2.
for ranks in 4 6; do
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" --space summa \
        --set cluster.levels[0].size=$ranks --set hidden=48 --set heads=6 --set sequence=24 --set global_batch=12 \
        --set micro_batch=6 --set pipeline=1 --set zero=1 -o "$folder/panels.json" >"$folder/found"
    grep -q "grid_row $((ranks / 2)) x grid_column 2" "$folder/found"
    "$@" -n $ranks "$run" "$folder/panels.json" --backend mpi --verify --steps 2 --check-collectives >"$folder/out"
    grep -q '^verified' "$folder/out"
done

# Keys and values round a ring of four, and of two beside stages.
for set in pipeline=1 pipeline=2; do
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
        --set context=ring --fix block0.attention=context:$((4 / ${set#*=})) --set $set --set micro_batch=2 \
        --set clip_norm=0.5 -o "$folder/ring.json" >/dev/null
    "$@" -n 4 "$run" "$folder/ring.json" --backend mpi --verify --steps 2 --check-collectives >"$folder/out"
    grep -q '^verified' "$folder/out"
done

# Stages, with a tied weight and a norm that are summed over them; every stage has its prediction.
for stages in 2 4; do
    for schedule in gpipe 1f1b zero-bubble message-driven; do
        "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
            --set pipeline=$stages --set schedule=$schedule --set micro_batch=2 --set clip_norm=0.5 \
            -o "$folder/stages.json" >/dev/null
        "$@" -n 4 "$run" "$folder/stages.json" --backend mpi --verify --steps 2 \
            --trace "$folder/stages-trace.json" >"$folder/out"
        grep -q '^verified' "$folder/out"
        test "$(grep -c '"predicted, stage' "$folder/stages-trace.json")" -eq $stages
    done
done

# Rows of images that ranks fetch of each other, past the neighbours too, and their gradients.
for steps in "" "--set pipeline=2 --set micro_batch=2"; do
    rows=$([ -z "$steps" ] && echo 4 || echo 2)
    # shellcheck disable=SC2086 # words
    "$sbplan" search --runnable "$(dirname "$0")/../golden/data/image-rows.json" "$configs/clusters/laptop-4.json" \
        --fix narrow=height:$rows --fix wide=height:$rows --fix strided=height:$rows $steps -o "$folder/rows.json" >/dev/null
    "$@" -n 4 "$run" "$folder/rows.json" --backend mpi --verify --steps 2 >"$folder/out"
    grep -q '^verified' "$folder/out"
done

# Stages of two ranks that communicate within works, which arrivals order.
sed 's/"size": 4/"size": 8/' "$configs/clusters/laptop-4.json" >"$folder/laptop-8.json"
"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$folder/laptop-8.json" \
    --set pipeline=4 --set schedule=message-driven --set micro_batch=1 --set pipeline_limit=6 \
    -o "$folder/driven.json" >/dev/null
"$@" -n 8 "$run" "$folder/driven.json" --backend mpi --verify --steps 2 >"$folder/out"
grep -q '^verified' "$folder/out"

# Groups of devices that take turns at the micro-batches of their stage.
"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
    --set cluster.levels[0].size=6 --set tied=false --set layers=3 --set global_batch=12 --set pipeline=3 \
    --set pyramid=true --set schedule=cdp-v2 --set allow_delayed_gradients=true -o "$folder/pyramid.json" >/dev/null
"$@" -n 6 "$run" "$folder/pyramid.json" --backend mpi --verify=sampled --steps 4 >"$folder/out"
grep -q '^verified' "$folder/out"

# Steps that run into each other, with two versions of weights; and as the verified ones train.
for schedule in cdp-v1 cdp-v2; do
    verify=full
    [ "$schedule" = cdp-v1 ] || verify=sampled
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
        --set pipeline=2 --set schedule=$schedule --set allow_delayed_gradients=true --set micro_batch=2 \
        --set clip_norm=0.5 -o "$folder/cyclic.json" >/dev/null
    "$@" -n 4 "$run" "$folder/cyclic.json" --backend mpi --verify=$verify --steps 4 \
        >"$folder/out"
    grep -q '^verified' "$folder/out"
    "$@" -n 4 "$run" "$folder/cyclic.json" --backend mpi --steps 4 --trace "$folder/cyclic-trace.json" \
        >"$folder/running"
    test -s "$folder/cyclic-trace.json"
    for file in out running; do
        awk '/^[1-4] +[0-9.]+ / { print $1, $2, $3 }' "$folder/$file" >"$folder/$file-losses"
    done
    test "$(wc -l <"$folder/out-losses")" -eq 4
    cmp -s "$folder/out-losses" "$folder/running-losses"
done

# Chunks of stages that take turns: messages go from the last stage back to the first.
"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
    --set pipeline=2 --set schedule=interleaved --set chunks=2 --set micro_batch=2 --set clip_norm=0.5 \
    -o "$folder/chunks.json" >/dev/null
"$@" -n 4 "$run" "$folder/chunks.json" --backend mpi --verify --steps 2 >"$folder/out"
grep -q '^verified' "$folder/out"

# States in host memory, in several buckets; their gradients summed before, or beside the optimizer.
for set in pipeline=2 chunk_factor=2; do
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
        --set micro_batch=4 --set offload=true --set bucket_parameters=5k --set $set \
        --set cluster.device.host_link_bytes_per_s=1e10 --set cluster.device.host_memory_bytes=1e10 \
        -o "$folder/hosted.json" >/dev/null
    "$@" -n 4 "$run" "$folder/hosted.json" --backend mpi --verify --steps 3 \
        --trace "$folder/hosted-trace.json" >"$folder/out"
    grep -q '^verified' "$folder/out"
    slots='; .* of slots for messages, as predicted' # where there are stages
    test $set = pipeline=2 || slots=
    grep -q "of host memory a rank, as the plan says$slots\$" "$folder/out"
    grep -q '"copy-out {3}"' "$folder/hosted-trace.json"
done
grep -q '"all-reduce .* {2}"' "$folder/hosted-trace.json"

# Sums of gradients beside the backward pass, or in it: the same numbers.
for overlap in 0 1; do
    "$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
        --set pipeline=1 --set micro_batch=4 --set zero=0 --set gradient_overlap=$overlap --set clip_norm=0.5 \
        -o "$folder/overlap.json" >/dev/null
    "$@" -n 4 "$run" "$folder/overlap.json" --backend mpi --verify --steps 4 \
        --trace "$folder/overlap-trace.json" >"$folder/out"
    grep -q '^verified' "$folder/out"
    awk '/^[1-4] +[0-9.]+ / { print $1, $2, $3 }' "$folder/out" >"$folder/overlap-$overlap"
done
test "$(wc -l <"$folder/overlap-1")" -eq 4
cmp -s "$folder/overlap-0" "$folder/overlap-1"
grep -q '"all-reduce block[^"]*\[' "$folder/overlap-trace.json" # in a work of a micro-batch

status=0
"$@" -n 3 "$run" "$folder/plan.json" --backend mpi --trace "$folder/none.json" \
    >"$folder/out" 2>"$folder/err" || status=$?
test "$status" -eq 2
grep -q 'plan is for 4 ranks, 3 are running' "$folder/err"
test ! -e "$folder/none.json"

# One process that has no plan, or another one, ends all of them: rank 0 says why.
cat >"$folder/odd.sh" <<'EOF'
plan=$2
[ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" != 2 ] || plan=$3
exec "$1" "$plan" --backend mpi
EOF
"$sbplan" search --runnable "$configs/models/tiny-mlp.json" "$configs/clusters/laptop-4.json" \
    -o "$folder/other.json" >/dev/null
"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
    --set optimizer=adamw -o "$folder/rates.json" >/dev/null
for odd in none other rates; do
    status=0
    timeout $((60 * ${SBP_TIMEOUT_SCALE:-1})) "$@" -n 4 sh "$folder/odd.sh" "$run" "$folder/plan.json" "$folder/$odd.json" \
        >"$folder/$odd.out" 2>"$folder/$odd.err" || status=$?
    test "$status" -eq 2
done
grep -q 'rank 2: .*none.json: cannot be opened' "$folder/none.err"
grep -q 'rank 2 has another plan' "$folder/other.err"
grep -q 'rank 2 has another plan' "$folder/rates.err"

# An error that all processes see: rank 0 says it, also when it is the last to find it.
cat >"$folder/late.sh" <<'EOF'
[ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" != 0 ] || sleep 1
exec "$@"
EOF
for program in "$run" "$calibrate"; do
    status=0
    "$@" -n 3 sh "$folder/late.sh" "$program" --seed -1 2>"$folder/err" || status=$?
    test "$status" -eq 2
    test "$(grep -c 'seed: "-1" is not legal' "$folder/err")" -eq 1
done

# Processes that srun started without MPI between them: the first says so, none runs.
"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
    --devices 1 -o "$folder/one.json" >/dev/null
as_task() { # NUMBER TIMES-IT-SPEAKS COMMAND...
    task=$1 times=$2 status=0
    shift 2
    SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=$task "$@" >"$folder/out" 2>"$folder/err" || status=$?
    test "$status" -eq 2
    test ! -s "$folder/out"
    test "$(grep -c 'the launcher started 4' "$folder/err")" -eq "$times"
}
as_task 1 0 "$sbplan" run "$folder/one.json"
for backend in '' '--backend mpi' '--backend threads'; do
    as_task 0 1 "$sbplan" run "$folder/plan.json" $backend
    as_task 0 1 "$sbplan" run "$folder/one.json" $backend
done

# Backends and devices that are not there; threads in several processes.
expect_refusal() { # TEXT COMMAND...
    text=$1
    shift
    status=0
    "$@" 2>"$folder/err" || status=$?
    test "$status" -eq 2
    test "$(grep -c "$text" "$folder/err")" -eq 1
}
for program in "$run" "$calibrate"; do
    plan=
    [ "$program" != "$run" ] || plan=$folder/plan.json
    expect_refusal 'backend nccl: ' "$program" $plan --backend nccl
    expect_refusal 'but the launcher started 3' "$@" -n 3 "$program" $plan --backend threads
done
for start in "$run" "$sbplan run"; do
    expect_refusal 'device cuda' $start "$folder/plan.json" --device cuda --dtype f64
    expect_refusal 'backend nccl: plans run on threads and mpi, and with --device cuda on nccl' $start "$folder/plan.json" --backend nccl
    expect_refusal 'messages is of --backend nccl' $start "$folder/plan.json" --messages mpi
done
