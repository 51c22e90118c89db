#!/bin/sh
# Plans on GPUs by NCCL, each rank a process with a GPU of its own, on the stand-ins, verified against
# one device in double.
# usage: run_nccl.sh SBPLAN-RUN-DOUBLE-NCCL SBPLAN CONFIGS MPIRUN FLAGS...
set -eu
run=$1 sbplan=$2 configs=$3
shift 3
folder=$(mktemp -d)
export SBP_DOUBLE_RUN=$$
unset CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS # which a run sets where nobody did
trap 'rm -rf "$folder" /dev/shm/nccl-double-$$-*' EXIT

complain() {
    echo "$*"
    cat "$folder/out" "$folder/err" || true
    exit 1
}

backend=nccl
verified() { # NAME DTYPE OPTION...: a plan by these options, two steps
    name=$1 dtype=$2
    shift 2
    "$sbplan" price "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" --set hidden=16 \
        --set heads=2 --set sequence=8 --set vocab=32 --set global_batch=2 "$@" \
        -o "$folder/$name.json" >"$folder/out" 2>"$folder/err" || complain "no plan $name"
    set --
    [ $backend != nccl ] || set -- --messages "$messages"
    $start -n "$ranks" "$run" "$folder/$name.json" --backend $backend --device cuda --dtype "$dtype" --steps 2 \
        --check-collectives "$@" --verify >"$folder/out" 2>"$folder/err" || complain "$name: exit $?"
    grep -q '^verified: every gradient, loss and update' "$folder/out" &&
        grep -q "($backend, cuda, " "$folder/out" || complain "$name: not verified"
}

chose() { # WAY: the last plan's run timed both
    grep -Eqx "messages: nccl [0-9.]+ [mu]s, mpi, $kind [0-9.]+ [mu]s a message of 512 B: $1" "$folder/out" ||
        complain "$name: messages are not by $1"
}

# The last step's loss and norm, as many digits as there are.
numbers() { # FILE
    $start -n "$ranks" "$run" "$folder/$name.json" --backend nccl --device cuda --dtype f32 --steps 3 \
        --messages "$messages" --json >"$folder/out" 2>"$folder/err" || complain "$name, $messages: exit $?"
    grep -E '"(loss|gradient_norm)"' "$folder/out" >"$1" || complain "$name: no loss"
}

start="$*" ranks=4 messages=auto kind=staged
verified pipeline f32 --pp 2 --tp 2
chose '(nccl|mpi)'
messages=nccl
verified pipeline f32 --pp 2 --tp 2
! grep -q '^messages' "$folder/out" || complain 'nccl: timed'
numbers "$folder/by_nccl"
messages=mpi
for kind in staged GPU-aware; do
    [ $kind = staged ] || export SBP_DOUBLE_AWARE=1 SBP_DOUBLE_DELAY=1
    says=$([ $kind = staged ] && echo 'does not say' || echo says)
    verified pipeline f32 --pp 2 --tp 2
    grep -qx "messages: mpi, $kind: the MPI library $says that it takes a GPU's memory" "$folder/out" ||
        complain "mpi: not $kind"
    numbers "$folder/by_mpi"
    cmp "$folder/by_nccl" "$folder/by_mpi" >&2 || complain "$kind: other numbers than by nccl"
    grep -q "\"messages_mpi\":[[:space:]]*\"$kind\"" "$folder/out" || complain "json: not $kind"
done
# Four stages, of which some send what comes next before the last message has left.
verified deep bf16 --pp 4 --tp 1 --set layers=4 --set global_batch=4 --set tied=false
# Blocks of a ring are larger than what stages send, by the host and by NCCL.
verified stages-ring f32 --pp 2 --cp 2 --set context=ring
# Arrivals decide what comes next where messages go by the host, and take slots there; the bits stay.
for messages in nccl mpi; do
    verified driven f32 --pp 4 --tp 1 --set layers=4 --set global_batch=4 --set tied=false \
        --micro-batch 1 --set schedule=message-driven
    [ $messages = nccl ] || grep -q 'of slots for messages' "$folder/out" || complain 'driven: no slots'
    numbers "$folder/by_$messages"
done
cmp "$folder/by_nccl" "$folder/by_mpi" >&2 || complain 'driven: other numbers than by nccl'
messages=auto
verified pipeline f32 --pp 2 --tp 2
chose '(nccl|mpi)'
unset SBP_DOUBLE_AWARE SBP_DOUBLE_DELAY
# A ring's first messages meet ranks that send as well, and no kernel would have to wait for one.
SBP_DOUBLE_FAIL=waiting:1 SBP_DOUBLE_DELAY=1 verified ring bf16 --cp 4 --set layers=1 --set context=ring --set attention=materialised
verified stages-ring bf16 --pp 2 --cp 2 --set context=ring
verified zero bf16 --tp 2 --zero 3
verified mixed f16 --tp 2 --zero 1 --set precision=mixed
verified offload bf16 --tp 2 --set layers=1 --set offload=true --set bucket_parameters=1500 \
    --set cluster.device.host_link_bytes_per_s=1e10
# By MPI alone, which is given copies in host memory.
backend=mpi
verified copies bf16 --pp 2 --tp 2
backend=nccl
# Groups that hand sums on in a ring.
ranks=3
verified pyramid f32 --pp 2 --set cluster.levels[0].size=3 --set tied=false --set pyramid=true \
    --set schedule=cdp-v1 --set allow_delayed_gradients=true
# Sums that stages hand on are received behind the next barrier.
ranks=2
verified replicas bf16 --devices 2 --pp 2 --tp 1 --set layers=2 --set tied=false --set chunks=2 \
    --set schedule=cdp-v1 --set allow_delayed_gradients=true
ranks=4
code=0
$start -n 4 "$run" "$folder/zero.json" --backend nccl --device cpu >"$folder/out" 2>"$folder/err" || code=$?
[ $code -eq 2 ] && grep -q 'backend nccl: .* with --device cuda' "$folder/err" || complain "on cpu: exit $code"

# The way that is slow is not taken.
for slow in 'ncclSend mpi' 'cudaMemcpyAsync nccl'; do
    SBP_DOUBLE_SLOW="${slow% *}" $start -n 4 "$run" "$folder/pipeline.json" --backend nccl --device cuda --json \
        >"$folder/out" 2>"$folder/err" || complain "slow $slow: exit $?"
    for key in "messages\":[[:space:]]*\"${slow#* }" 'message_bytes":[[:space:]]*512' \
        'message_nccl_s":[[:space:]]*[0-9]' 'message_mpi_s":[[:space:]]*[0-9]'; do
        grep -q "\"$key" "$folder/out" || complain "slow $slow: no $key"
    done
done

# STATUS TEXT NAME VARIABLE=CALL:N@RANK OPTION...: one step, in which something goes wrong.
ends() {
    expected=$1 text=$2 name=$3 planted=$4
    shift 4
    code=0
    env "$planted" $start -n $ranks "$run" "$folder/$name.json" --backend nccl --device cuda --dtype bf16 "$@" \
        >"$folder/out" 2>"$folder/err" || code=$?
    [ $code -eq "$expected" ] && grep -q "$text" "$folder/err" ||
        complain "$name $planted: exit $code, expected $expected and: $text"
}

# A wait that is left out. A host that a sanitizer slows is never ahead of its GPU, and needs none.
misses() {
    text=$1
    shift
    [ -n "${SBP_IS_SANITIZED-}" ] || ends 2 "a missing wait: $text" "$@"
}

# Products by panels, over a grid.
"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" --space summa \
    --set hidden=16 --set heads=2 --set sequence=8 --set vocab=32 --set global_batch=2 --set pipeline=1 \
    -o "$folder/grid.json" >"$folder/out" 2>"$folder/err" || complain 'no plan of a grid'
grep -q 'grid_row 2 x grid_column 2' "$folder/out" || complain 'no grid of 2 x 2'
verified panels bf16 --set linears=summa --strategy "$folder/grid.json"

# Rows of images by messages, whose first ones meet a rank that sends as well.
"$sbplan" search "$(dirname "$0")/../golden/data/image-rows.json" "$configs/clusters/laptop-4.json" --runnable \
    --fix narrow=height:4 --fix wide=height:4 --fix strided=height:4 -o "$folder/rows.json" \
    >"$folder/out" 2>"$folder/err" || complain 'no plan of rows'
$start -n 4 "$run" "$folder/rows.json" --backend nccl --device cuda --dtype f32 --steps 2 --verify \
    >"$folder/out" 2>"$folder/err" || complain "rows: exit $?"
grep -q '^verified: every gradient, loss and update' "$folder/out" || complain 'rows: not verified'

# Sums beside the backward pass: of gradients waits the sum, for it the optimizer; each is missed.
export SBP_DOUBLE_DELAY=1
verified sums bf16 --tp 1 --set layers=1 --set global_batch=4 \
    --set cluster.gradient_overlap=1
misses 'stream .* a collective' sums SBP_DOUBLE_FAIL=wait:1@1
misses '.*\(optimizer.*a collective\|a collective.*optimizer\)' sums SBP_DOUBLE_FAIL=wait:19@1
# A message that is read before it is there.
misses '.* writes in a message' pipeline SBP_DOUBLE_FAIL=wait:2@2 --messages nccl
# A block that comes while the one before is still read.
ranks=2
verified two-ring bf16 --devices 2 --cp 2 --set layers=1 --set context=ring
misses '.* writes in a message' two-ring SBP_DOUBLE_FAIL=wait:3@1
ranks=4
# A collective that fails on the device of one rank is aborted; one that hangs is named.
ends 2 'rank 1: device cuda: all-reduce .*: nccl: \(NCCL, meanwhile\|ncclAllReduce\): remote process' sums \
    SBP_DOUBLE_STALL=ncclAllReduce:5@1
ends 1 'lost: rank . (host .*, stage 0) is at step 1, all-reduce .* (.* s, waits for ranks .*--deadline 1' sums \
    SBP_DOUBLE_HANG=ncclAllReduce:5@1 --deadline 1
# Communicators that are not made come to the deadline, too.
ends 1 'lost: rank . .* is at its start' sums SBP_DOUBLE_HANG=ncclCommSplit:1@1 --deadline 0.1
ranks=2
ends 1 'rank 1 (host .*, stage 1) is at step 1, take .* (.* s, waits for rank 0)' replicas \
    SBP_DOUBLE_HANG=ncclRecv:5@1 --deadline 1 --messages nccl
# GPU-aware, without memory for a copy, and with a rank that never answers.
export SBP_DOUBLE_AWARE=1
ends 2 'rank 1: .*cudaMalloc: out of memory' replicas SBP_DOUBLE_FAIL=cudaMalloc:3@1 --messages mpi
ends 1 'rank 1 (host .*, stage 1) is at step 1, take .* (.* s, waits for rank 0)' replicas SBP_DOUBLE_HANG=MPI_Recv:1@1 \
    --deadline 1 --messages mpi
unset SBP_DOUBLE_AWARE
# By the host, for which there is no pinned memory.
ends 2 'rank 1: .*cudaMallocHost: out of memory' replicas SBP_DOUBLE_FAIL=cudaMallocHost:2@1 --messages mpi
