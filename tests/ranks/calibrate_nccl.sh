#!/bin/sh
# A whole calibration over NCCL, on the stand-in for GPUs: its rates, which are known, stand in the
# cluster file, and a search accepts it.
# usage: calibrate_nccl.sh CALIBRATE SBPLAN CONFIGS MPIRUN FLAGS...
set -eu
calibrate=$1 sbplan=$2 configs=$3
shift 3
folder=$(mktemp -d)
export SBP_DOUBLE_RUN=$$ SBP_DOUBLE_KERNEL_S=0.1 # of each kernel of the project's own
trap 'rm -rf "$folder" /dev/shm/nccl-double-$$-*' EXIT

complain() {
    echo "$*"
    cat "$folder/out" "$folder/err" "$folder/cluster.json" || true
    exit 1
}

"$@" -n 4 "$calibrate" --backend nccl -o "$folder/cluster.json" --max-bytes 4K --runs 1 \
    --budget-s 6 >"$folder/out" 2>"$folder/err" || complain 'the calibration failed'
grep -q '4 ranks on 1 host (stand-in GPU), backend nccl' "$folder/out" || complain 'origin'

# The stand-in's own (tests/support/gpu_double/gpu_double.h), within 1 %: a launch is part of each product.
expect_rate() { # KEY RATE [FILE]
    awk -v key="\"$1\":" -v rate="$2" '
        $1 == key && !found { found = $2 + 0 }
        END { exit !(found > 0.99 * rate && found < 1.01 * rate) }' "$folder/${3:-cluster.json}" ||
        complain "$1 is not $2"
}
expect_rate fp32 1e12
expect_rate fp64 5e11
expect_rate bf16 8e12
expect_rate fp16 4e12
expect_rate fp8 16e12
expect_rate memory_bytes_per_s 5e11
! grep -q kernel_launch_s "$folder/cluster.json" || complain 'a launch counts twice'
expect_rate memory_bytes 2147483648
for text in '"name":[[:space:]]*"stand-in GPU"' '"backend":[[:space:]]*"nccl"' \
    '"library":[[:space:]]*"NCCL 2\.' '"device":[[:space:]]*"stand-in GPU"' 'events of the GPU'; do
    grep -q "$text" "$folder/cluster.json" || complain "no $text"
done
"$sbplan" search "$configs/models/tiny-gpt.json" "$folder/cluster.json" -o "$folder/plan.json" \
    >"$folder/out" || complain 'the search refuses it'

expect_refusal() { # TEXT COMMAND...
    text=$1
    shift
    status=0
    "$@" --backend nccl -o "$folder/none.json" >"$folder/out" 2>"$folder/err" || status=$?
    [ "$status" -eq 2 ] && [ ! -e "$folder/none.json" ] &&
        [ "$(grep -c "$text" "$folder/err")" -eq 1 ] || complain "exit $status, expected 2 and: $text"
}
expect_refusal 'ranks 0 and 4 (host .*) have the same GPU, 0000:10:00.0: ' "$@" -n 5 "$calibrate"
expect_refusal 'rank 0 (host .*) has no GPU: cudaGetDeviceCount: no CUDA-capable device' \
    env SBP_DOUBLE_DEVICES=0 "$@" -n 2 "$calibrate"
expect_refusal 'there is 1 rank' "$@" -n 1 "$calibrate"
# The stand-in is hot after 40 s of products, and the budget gives it 60.
SBP_DOUBLE_HOST_S=1e-3 "$@" -n 1 "$calibrate" -n 1 --backend nccl -o "$folder/one.json" --runs 1 --budget-s 600 \
    >"$folder/out" 2>"$folder/err" || complain 'a GPU alone'
expect_rate stream_efficiency 0.8 one.json
awk '/"sustained"/ { getline; exit !($2 > 0.899 && $2 < 0.901) }' "$folder/one.json" || complain 'load leaves another rate'
expect_rate load_s 60 one.json
expect_rate host_link_bytes_per_s 5e11 one.json
grep -q '60 s of load leave 90 %; the host launches in 1\..*; its link moves .* one way$' "$folder/out" || complain 'load and host are not told'
# Above what the host spends, by what the stand-in's own call takes.
awk '/"host_launch_s"/ { exit !($2 > 0.999e-3 && $2 < 1.25e-3) }' "$folder/one.json" || complain 'launches by the host'
! grep -q overlap "$folder/one.json" || complain 'a GPU alone overlaps with nobody'

# Of collectives that take 1 ms of the stand-in, and 0.3 ms from products beside them, 0.7 hides.
SBP_DOUBLE_BESIDE=0.3 "$@" -n 2 "$calibrate" --backend nccl -o "$folder/beside.json" --runs 1 --max-bytes 4K \
    --budget-s 600 >"$folder/out" 2>"$folder/err" || complain 'collectives beside products'
expect_rate overlap_efficiency 0.7 beside.json
for kind in all-reduce all-gather reduce-scatter; do
    grep -A 4 '"overlap":' "$folder/beside.json" | grep -q "\"$kind\":.*0\.[67]" || complain "no overlap of $kind"
    grep '^overlap: ' "$folder/out" | grep -q "70 % (70 to 70) of $kind" || complain "overlap of $kind is not told"
done
for type in bf16 fp8; do
    for pass in input_gradient weight_gradient; do
        grep -A 1 "\"type\":[[:space:]]*\"$type\"" "$folder/one.json" | grep -q "$pass" ||
            complain "no $pass in $type"
    done
done
# Gradients in fp8 are summed exactly, at three quarters of the rate: the largest product of each grid.
awk '/"type":/ { fp8 = /"fp8"/; pass = "forward" } /"pass":/ { pass = $2 }
    /"efficiency":.*\[/ && fp8 { gsub(/[],]/, ""); share = $NF / (pass ~ /forward/ ? 1 : 0.75)
        found += share > 0.99 && share < 1.01 } END { exit found != 3 }' "$folder/one.json" ||
    complain 'fp8 by pass'
# Attention is one kernel forward and three backward; rows are one, whatever they have.
awk '
    /"attention_grids"/ { inside = 1 } /"gemm_grids"/ { inside = 0 }
    /"efficiency":.*\[/ && inside { gsub(/[],]/, ""); share[++count] = $NF }
    END { forward = 262144 * 4096.5 * 518 / 0.1 / 8e12; backward = 262144 * 4096.5 * 1286 / 0.3 / 8e12
        exit !(count == 2 && share[1] / forward > 0.999 && share[1] / forward < 1.001 &&
               share[2] / backward > 0.999 && share[2] / backward < 1.001) }' "$folder/one.json" ||
    complain 'attention'
awk '/"dispatch_efficiency"/ { getline; sizes = $0; getline; shares = $0 }
    END { gsub(/[^0-9,]/, "", sizes); gsub(/.*\[|\].*/, "", shares); count = split(shares, share, ",")
        for (i = 1; i <= count; i++) wrong += share[i] < 0.0026842 || share[i] > 0.0026845
        exit !(sizes == "1024,4096,16384," && count == 3 && !wrong) }' "$folder/one.json" || complain 'dispatch'
# A rank whose GPU has no fp8 keeps all from timing it.
env SBP_DOUBLE_FAIL=fp8:1@1 "$@" -n 2 "$calibrate" --backend nccl -o "$folder/half.json" --runs 1 --max-bytes 4K \
    --collectives all-reduce --budget-s 20 >"$folder/out" 2>"$folder/err" || complain 'no fp8'
grep -q '^note: products in fp8 were not timed' "$folder/out" && ! grep -q '"fp8"' "$folder/half.json" ||
    complain 'fp8 of a GPU that has none'
"$sbplan" search "$configs/models/tiny-gpt.json" "$folder/one.json" >"$folder/out" ||
    complain 'the search refuses a GPU alone'

# Each product of experts has weights of its own, which the stand-in takes longer for, in every pass; a
# mixture of experts takes longer by it, a dense model does not.
for pass in forward input_gradient weight_gradient; do
    expect_rate $pass 0.8 one.json
done
step_of() { # MODEL [OPTION...]: as if kernels and launches that are made up slow were not timed
    model=$1
    shift
    "$sbplan" search "$configs/models/$model.json" "$folder/one.json" --set layers=2 --set hidden=256 \
        --set ffn=512 --set vocab=1024 --set sequence=128 --set global_batch=16 \
        --set cluster.device.attention_grids=[] --set cluster.device.host_launch_s=0 --set cluster.device.dispatch_efficiency.efficiency=[1,1,1] "$@" >"$folder/out" ||
        complain "the search of $model refuses it"
    sed -n 's/^step *\([0-9.]* [a-z]*\) = .*/\1/p' "$folder/out"
}
key=cluster.device.grouped_efficiency
single="--set $key.forward=1 --set $key.input_gradient=1 --set $key.weight_gradient=1"
mixture=$(step_of mixtral-8x7b) mixture_of_single=$(step_of mixtral-8x7b $single)
echo "$mixture $mixture_of_single" | awk '{ exit !($2 == "ms" && $4 == "ms" && $1 > 1.05 * $3) }' ||
    complain "a mixture takes $mixture, at the rate of single products $mixture_of_single"
[ -n "$(step_of qwen3-8b)" ] && [ "$(step_of qwen3-8b)" = "$(step_of qwen3-8b $single)" ] ||
    complain 'a dense model takes another time'

expect_refusal 'rank 0: .*cublasGemmEx: a failure of the stand-in' \
    env SBP_DOUBLE_FAIL=cublasGemmEx:3@0 "$@" -n 2 "$calibrate"
expect_refusal 'rank 1: .*the GPU has no memory for matrices' \
    env SBP_DOUBLE_FAIL=cudaMalloc:6@1 "$@" -n 2 "$calibrate"
for call in cudaEventRecord cudaEventElapsedTime cublasCreate cublasSgeam cudaMemGetInfo cublasLtMatmul; do
    expect_refusal "rank 1: .*$call: " env SBP_DOUBLE_FAIL=$call:1@1 "$@" -n 2 "$calibrate" --budget-s 120
done
# Libraries that one host lacks, or all: the first rank without them ends the others.
expect_refusal 'rank 1: backend nccl: cannot be loaded' env SBP_DOUBLE_FAIL=dlopen:1@1 "$@" -n 2 "$calibrate"
expect_refusal 'backend nccl: cannot be loaded' env SBP_DOUBLE_FAIL=dlopen:1 "$@" -n 3 "$calibrate"

# Each rank of a launcher that gives every one a device sees that alone.
cat >"$folder/one.sh" <<'EOS'
export SBP_DOUBLE_DEVICES=1 SBP_DOUBLE_FIRST="$OMPI_COMM_WORLD_RANK"
exec "$@"
EOS
"$@" -n 2 sh "$folder/one.sh" "$calibrate" --backend nccl --dry-run >"$folder/out" 2>"$folder/err" ||
    complain 'a device a rank'
grep -q 'copy' "$folder/out" || complain 'no plan'
