#!/bin/sh
# Plans run on the stand-in for GPUs (tests/support/gpu_double/), each verified against one device in
# double: kernels of kernels/cuda by fibers, products by the stand-in's cuBLAS, memory that the host
# cannot reach. What goes wrong on a device is found, or said.
# usage: run_double.sh SBPLAN SBPLAN-RUN-DOUBLE CONFIGS
set -eu
sbplan=$1 run=$2 configs=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

complain() {
    echo "$*"
    cat "$folder/out" "$folder/err" || true
    exit 1
}

# NAME OPTION...: a plan for a small GPT; attention in single precision takes the host longest.
plan() {
    name=$1
    shift
    "$sbplan" price "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" --set layers=1 \
        --set hidden=16 --set heads=2 --set sequence=8 --set vocab=32 --set global_batch=2 "$@" \
        -o "$folder/$name.json" >"$folder/out" 2>"$folder/err" || complain "no plan $name"
}

# DEVICE NAME OPTION...: without --device a run takes it, and says so first.
takes() {
    device=$1 name=$2
    shift 2
    env "$@" "$run" "$folder/$name.json" --dtype ${dtype:-bf16} >"$folder/out" 2>"$folder/err" ||
        complain "$name on $device: exit $?"
    head -n 1 "$folder/out" | grep -q "(threads, $device, " || complain "$name: not on $device"
}

# WAIT WHAT NAME: one step in which a stream leaves out that wait for another.
misses() {
    fails 2 "fault: a missing wait: stream [0-9].*\\($2\\)" "$3" "wait:$1" --dtype bf16
}

# NAME OPTION...: two steps, verified.
verified() {
    name=$1
    shift
    "$run" "$folder/$name.json" --device cuda --steps 2 --verify "$@" >"$folder/out" 2>"$folder/err" ||
        complain "$name $*: exit $?"
    grep -q -e '^verified: every gradient, loss and update' -e '"status":[[:space:]]*"passed"' "$folder/out" ||
        complain "$name $*: not verified"
    grep -q -e "(threads, cuda, " -e '"device":[[:space:]]*"cuda"' "$folder/out" ||
        complain "$name $*: on another device"
}

# NAME OPTION...: the numbers of three steps, without verification and with it.
same() {
    name=$1
    shift
    for way in '' --verify; do
        # shellcheck disable=SC2086 # nothing or one word
        SBP_DOUBLE_DELAY=6 "$run" "$folder/$name.json" --device cuda --steps 3 --json $way "$@" \
            >"$folder/out" 2>"$folder/err" || complain "$name $way $*: exit $?"
        grep -E '"(loss|grad_norm|loss_scale|left_out)":' "$folder/out" >"$folder/numbers$way" ||
            complain "$name $way: no numbers"
    done
    cmp -s "$folder/numbers" "$folder/numbers--verify" || complain "$name: other numbers without --verify"
}

# STATUS TEXT NAME SBP_DOUBLE_FAIL OPTION...
fails() {
    status=$1 text=$2 name=$3 trap=$4
    shift 4
    code=0
    SBP_DOUBLE_FAIL=$trap "$run" "$folder/$name.json" --device cuda "$@" >"$folder/out" 2>"$folder/err" ||
        code=$?
    [ $code -eq "$status" ] && cat "$folder/out" "$folder/err" | grep -q "$text" ||
        complain "$name $trap $*: exit $code, expected $status and: $text"
}

# NAME: microseconds that the first task of that name took of the device, in the last trace.
time_of() {
    grep "\"name\":\"$1[ \"]" "$folder/trace" | sed -n 's/.*"pid":2,.*"dur":\([0-9.]*\).*/\1/p' | head -n 1
}

# EPILOGUE NAME OTHER: tasks of which the first takes no time, and the second less, where the library
# has products with that epilogue; without, too, the plan is verified.
joins() {
    verified deep --dtype bf16 --trace "$folder/trace"
    first=$(time_of "$2") second=$(time_of "$3")
    SBP_DOUBLE_FAIL=$1:1 verified deep --dtype bf16 --trace "$folder/trace"
    awk -v a="$first" -v b="$(time_of "$2")" -v c="$second" -v d="$(time_of "$3")" \
        'BEGIN { exit !(a != "" && c != "" && a < b && c <= d) }' ||
        complain "$1: $2 takes $first and $(time_of "$2"), $3 $second and $(time_of "$3")"
}

plan one --devices 1 --tp 1
verified one
verified one --dtype bf16
# Factors of products have 11 bits, which shows in the loss.
verified one --json
exact=$(grep '"loss"' "$folder/out" | head -n 1)
verified one --math tf32 --json
grep -q '"math":.*"tf32"' "$folder/out" || complain 'not in tf32'
[ "$(grep '"loss"' "$folder/out" | head -n 1)" != "$exact" ] || complain 'tf32 gives the bits of f32'
fails 2 'math tf32 is for tensors in f32 on device cuda, not in bf16 on device cuda' one none --math tf32 \
    --dtype bf16
# Two layers of one size, which one product with a bias serves.
plan deep --devices 1 --tp 1 --set layers=2
verified deep
# A gelu, its slope and sums of a bias's gradient are done by the products beside them.
joins gelu 'forward block0.gelu' 'forward block0.up'
joins dgelu 'backward block1.gelu' 'backward block1.down'
joins bgrad 'backward block1.down.1' 'backward block1.up.1'
# Where features are whole, the second phase does the first one's work: of a norm, and of the loss.
verified deep --dtype bf16 --trace "$folder/trace"
for first in 'forward block0.norm1' 'backward block0.norm1' 'forward loss'; do
    echo "$(time_of "$first") $(time_of "$first.1")" | awk '{ exit !(NF == 2 && $1 == 0 && $2 > 0) }' ||
        complain "$first takes $(time_of "$first"), its second phase $(time_of "$first.1")"
done
plan stepwise --devices 1 --tp 1 --set global_batch=4 --micro-batch 1
for dtype in f32 bf16 f16; do
    verified stepwise --dtype $dtype
done
unset dtype
plan tensor --tp 4 --set heads=4
verified tensor --dtype bf16
plan zero --tp 1 --zero 3 --set global_batch=4
verified zero --dtype bf16
plan pipeline --pp 2 --tp 2 --set layers=2
verified pipeline --dtype bf16
# All ranks on one GPU.
SBP_DOUBLE_DEVICES=1 verified pipeline --dtype bf16
# Where arrivals decide, messages come to slots in the host's memory.
plan driven --pp 4 --tp 1 --set layers=4 --set schedule=message-driven --set global_batch=4 --micro-batch 1
SBP_DOUBLE_DELAY=8 verified driven --dtype bf16
grep -q 'of slots for messages' "$folder/out" || complain 'driven: no slots'
plan turns --pp 2 --tp 2 --set layers=4 --set chunks=2 --set schedule=interleaved --set global_batch=4 --micro-batch 1
SBP_DOUBLE_DELAY=9 verified turns --dtype bf16
"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" --space summa \
    --set layers=1 --set hidden=16 --set heads=4 --set sequence=8 --set vocab=32 --set global_batch=4 \
    --set micro_batch=2 --set pipeline=1 --set zero=1 --set cluster.gradient_overlap=1 -o "$folder/panels.json" \
    >"$folder/out" 2>"$folder/err" && grep -q 'grid_row 2 x grid_column 2' "$folder/out" || complain 'no plan panels'
SBP_DOUBLE_DELAY=2 verified panels --dtype bf16
# More rows than columns: a rank's activations lie in several panels, and are copied row by row.
cat >"$folder/tall.model" <<'END'
{"name": "tall", "global_batch": 12, "input": "split", "precision": "fp32", "layers": [
  {"op": "summa_linear", "name": "one", "in": 24, "out": 12, "bias": true}, {"op": "gelu"},
  {"op": "summa_linear", "name": "other", "out": 24}, {"op": "cross_entropy"}]}
END
"$sbplan" search "$folder/tall.model" "$configs/clusters/laptop-4.json" --set 'cluster.levels[0].size=6' --runnable \
    --fix one=grid_row:3,grid_column:2 --fix other=grid_row:3,grid_column:2 -o "$folder/tall.json" \
    >"$folder/out" 2>"$folder/err" || complain 'no plan tall'
SBP_DOUBLE_DELAY=2 verified tall
SBP_DOUBLE_DELAY=2 verified tall --dtype bf16
plan context --cp 2
verified context --dtype bf16
# Keys and values round rings of four and of two, of which each rank's first block is its own.
plan ring --cp 4 --set context=ring --set attention_dropout=0.1
SBP_DOUBLE_DELAY=6 verified ring --dtype bf16
plan kept-ring --devices 2 --cp 2 --set context=ring --set attention=materialised --set attention_dropout=0.1
verified kept-ring --dtype bf16
plan pipelined-ring --pp 2 --cp 2 --set layers=2 --set context=ring
SBP_DOUBLE_DELAY=7 verified pipelined-ring --dtype f16
plan bubble --pp 2 --set layers=2 --set schedule=zero-bubble --micro-batch 1
verified bubble --dtype bf16
plan offload --tp 2 --set offload=true --set bucket_parameters=1500 \
    --set cluster.device.host_link_bytes_per_s=1e10
verified offload --dtype bf16
# The loss scale is halved until gradients fit, by all ranks alike.
plan mixed --tp 2 --zero 1 --set precision=mixed
verified mixed --dtype f16
grep -q '65536' "$folder/out" || complain 'no loss scale'

# A GPU where one is, the module is, and kernels are.
takes cuda one
takes cpu one SBP_DOUBLE_DEVICES=0
takes cpu one SBP_DOUBLE_FAIL=dlopen:1
dtype=f64 takes cpu one

# Sums of gradients beside the backward pass, and of buckets beside the optimizer, with work that is
# late.
plan sums --devices 2 --tp 1 --set cluster.gradient_overlap=1
SBP_DOUBLE_DELAY=2 verified sums --dtype bf16
plan buckets --devices 2 --tp 1 --set offload=true --set bucket_parameters=1500 \
    --set chunk_factor=2 --set cluster.device.host_link_bytes_per_s=1e10
SBP_DOUBLE_DELAY=3 verified buckets --dtype bf16
# TYPE: where the link takes 10 us for each, copies of states follow each other one way, many of them
# begin while one goes the other way, and all take less time than one after the other.
overlaps() {
    SBP_DOUBLE_LINK_S=1e-5 "$run" "$folder/hosted.json" --device cuda --dtype "$1" --trace "$folder/trace" \
        >"$folder/out" 2>"$folder/err" || complain "hosted: exit $?"
    sed -n 's/.*"name":"\(copy-[a-z]*\) .*"pid":2,.*"ts":\([0-9.]*\),"dur":\([0-9.]*\).*/\1 \2 \3/p' \
        "$folder/trace" | sort -n -k 2 | awk '
            NR == 1 { begin = $2 }
            {
                both += $2 < end[$1 == "copy-in" ? "copy-out" : "copy-in"] - 0.01
                early += $2 < end[$1] - 0.01
                spent += $3
                end[$1] = $2 + $3
                last = end[$1] > last ? end[$1] : last
            }
            END {
                print NR " copies, " both + 0 " beside another way, " early + 0 " beside one of their own, " \
                    spent " us in " last - begin
                exit !(NR > 8 && both >= NR / 4 && early == 0 && last - begin < 0.75 * spent)
            }' >"$folder/sums" || complain "copies in $1: $(cat "$folder/sums")"
    cat "$folder/sums"
}

# Waits that are left out, whatever the times: of an update for its states, of their copy back for the
# update, and of the fourth bucket's copy for that of the first, which has its place.
plan hosted --devices 1 --tp 1 --set offload=true --set bucket_parameters=200 \
    --set cluster.device.host_link_bytes_per_s=1e10
overlaps f32
overlaps bf16
# The norm, and sums on their way to shards, beside the backward pass, lie where buckets come to.
SBP_DOUBLE_DELAY=4 verified hosted --dtype f16
plan lapped --devices 2 --tp 1 --zero 2 --set cluster.gradient_overlap=1 --set clip_norm=0 --set offload=true \
    --set bucket_parameters=200 --set cluster.device.host_link_bytes_per_s=1e10
SBP_DOUBLE_DELAY=5 verified lapped

# Without verification the host runs ahead of the device, and all numbers have the same bits. A gradient that
# is no number is left out on the device, and its layer found.
same hosted --dtype f16
plan cyclic --devices 2 --tp 1 --pp 2 --set layers=2 --set schedule=cdp-v1 --set allow_delayed_gradients=true \
    --set clip_norm=0 --micro-batch 1
same cyclic --dtype f16
plan hot --devices 2 --tp 1 --dp 2 --zero 0 --set clip_norm=0 --set 'optimizer={"name":"sgd","learning_rate":1000000}'
fails 1 'layer .*: its output holds NaN or infinity (step [2-9], rank [01])' hot none --steps 9 --dtype f32

misses 4 'optimizer.*a copy\|a copy.*optimizer' hosted
misses 5 'optimizer.*a copy\|a copy.*optimizer' hosted
misses 7 'a copy what .* a copy' hosted

# Norms by root mean square and gates, without attention.
cat >"$folder/gated.model" <<'END'
{"name": "gated", "global_batch": 2, "sequence": 8, "precision": "fp32", "layers": [
  {"op": "embedding", "name": "embed", "vocab": 32, "hidden": 16},
  {"op": "rmsnorm"}, {"op": "linear", "name": "up", "out": 64, "out_heads": 32}, {"op": "swiglu"},
  {"op": "linear", "name": "down", "out": 16}, {"op": "tanh"}, {"op": "rmsnorm"},
  {"op": "linear", "name": "head", "out": 32}, {"op": "cross_entropy", "name": "loss"}]}
END
"$sbplan" search "$folder/gated.model" "$configs/clusters/laptop-4.json" --runnable -o "$folder/gated.json" \
    >"$folder/out" 2>"$folder/err" || complain 'no plan gated'
verified gated
verified gated --dtype bf16

# NAME MODEL OPTION...: a plan for a small model of a family whose heads share keys and values.
family() {
    name=$1 model=$2
    shift 2
    "$sbplan" price "$configs/models/$model.json" "$configs/clusters/laptop-4.json" --set layers=1 \
        --set hidden=16 --set heads=4 --set kv_heads=2 --set head_dim=8 --set ffn=16 --set vocab=32 \
        --set sequence=8 --set global_batch=2 --set precision=fp32 "$@" -o "$folder/$name.json" \
        >"$folder/out" 2>"$folder/err" ||
        complain "no plan $name"
}

# Two heads of queries read one of keys, on two ranks and on four, whose keys two have; a window; queries
# split by sequence, and keys round rings.
family llama llama-3.1-8b --tp 2
verified llama --dtype bf16
family shared llama-3.1-8b --tp 4
verified shared --dtype bf16
family split llama-3.1-8b --cp 2
verified split --dtype bf16
family head-ring llama-3.1-8b --tp 2 --cp 2 --set context=ring
verified head-ring --dtype bf16
family ring-window gemma-3-27b --cp 4 --set layers=2 --set window=3 --set window_layers=1 --set context=ring
verified ring-window --dtype bf16
family window gemma-3-27b --tp 2 --set layers=2 --set window=3 --set window_layers=1
verified window --dtype bf16

# NAME MODEL OPTION...: a plan for one small layer of a model of another kind.
other() {
    name=$1 model=$2
    shift 2
    "$sbplan" price "$configs/models/$model.json" "$configs/clusters/laptop-4.json" --set layers=1 \
        --set hidden=16 --set heads=2 --set global_batch=2 --set precision=fp32 "$@" \
        -o "$folder/$name.json" >"$folder/out" 2>"$folder/err" || complain "no plan $name"
}

# Experts on four ranks; sinks of attention and biases of experts; latent attention and experts in groups, by
# heads and with queries split by sequence, or round a ring; tokens with types; patches with a class token; convolutions, pools and batch normalisation.
other mixture mixtral-8x7b --tp 1 --ep 4 --set heads=4 --set kv_heads=2 --set head_dim=8 --set ffn=16 \
    --set vocab=32 --set sequence=8 --set global_batch=4 --set experts=4
verified mixture --dtype bf16
other sinks gpt-oss-120b --devices 2 --tp 2 --set window_layers=1 --set window=3 --set heads=4 --set kv_heads=2 \
    --set head_dim=8 --set ffn=16 --set vocab=32 --set sequence=8 --set experts=4 --set top_k=2
verified sinks --dtype bf16
other ring-sinks gpt-oss-120b --devices 2 --cp 2 --set window_layers=1 --set window=3 --set heads=4 --set kv_heads=2 \
    --set head_dim=8 --set ffn=16 --set vocab=32 --set sequence=8 --set experts=4 --set top_k=2 --set context=ring
verified ring-sinks --dtype bf16
latent='--set dense_layers=0 --set ffn=16 --set q_rank=8 --set kv_rank=8 --set nope=8 --set rope=4 --set value=8
    --set experts=8 --set expert_groups=4 --set nodes_per_token=2 --set top_k=4 --set expert_ffn=8 --set vocab=32
    --set sequence=8'
other latent deepseek-v3 --devices 2 --tp 2 $latent
verified latent --dtype bf16
other gathered deepseek-v3 --devices 2 --cp 2 $latent
verified gathered --dtype bf16
other latent-ring deepseek-v3 --cp 4 --set context=ring $latent
verified latent-ring --dtype bf16
other types bert-large --devices 2 --tp 2 --set vocab=32 --set sequence=8 --set dropout=0
verified types --dtype bf16
other patches vit-b-16 --devices 2 --tp 2 --set image=48 --set classes=10
verified patches --dtype f16
cat >"$folder/images.model" <<'END'
{"name": "images", "global_batch": 4, "precision": "fp32", "input": {"height": 12, "width": 12, "channels": 3},
 "layers": [
  {"op": "conv2d", "name": "stem", "out": 8, "kernel": 3, "padding": 1},
  {"op": "batchnorm"}, {"op": "relu"}, {"op": "maxpool", "kernel": 3, "stride": 2, "padding": 1},
  {"op": "conv2d", "name": "inner", "out": 8, "kernel": 3, "stride": 2, "padding": 1, "bias": true},
  {"op": "batchnorm"}, {"op": "relu"}, {"op": "avgpool", "kernel": 3}, {"op": "flatten"},
  {"op": "linear", "name": "head", "out": 10}, {"op": "cross_entropy", "name": "loss"}]}
END
"$sbplan" search "$folder/images.model" "$configs/clusters/laptop-4.json" --runnable -o "$folder/images.json" \
    >"$folder/out" 2>"$folder/err" || complain 'no plan images'
verified images
verified images --dtype bf16
"$sbplan" search "$(dirname "$0")/../golden/data/image-rows.json" "$configs/clusters/laptop-4.json" --runnable \
    --fix narrow=height:4 --fix wide=height:4 --fix strided=height:4 -o "$folder/rows.json" \
    >"$folder/out" 2>"$folder/err" || complain 'no plan rows'
verified rows
verified rows --dtype bf16

# More than kernels have room for is refused before anything starts, by name.
other crowd mixtral-8x7b --devices 1 --tp 1 --set kv_heads=2 --set head_dim=8 --set ffn=16 --set vocab=32 \
    --set sequence=8 --set experts=2001
fails 2 'operator .*moe has 2001 experts, device cuda has kernels for 2000 at most' crowd none --dtype bf16
# IMAGES NAME LAYERS: a plan for images of so many pixels a side.
layers() {
    cat >"$folder/$2.model" <<END
{"name": "$2", "global_batch": 1, "precision": "fp32", "input": {"height": $1, "width": $1, "channels": 3},
 "layers": [$3, {"op": "flatten"}, {"op": "linear", "name": "head", "out": 10}, {"op": "cross_entropy", "name": "loss"}]}
END
    "$sbplan" search "$folder/$2.model" "$configs/clusters/laptop-4.json" --set devices=1 --runnable \
        -o "$folder/$2.json" >"$folder/out" 2>"$folder/err" || complain "no plan $2"
}
layers 440 wide '{"op": "conv2d", "name": "stem", "out": 8, "kernel": 440}'
fails 2 'operator stem has columns of 2129600 numbers on a rank, device cuda has room for 2097088' wide none

# Shared memory as on sm_86, where heads of 128 features are too large in single precision alone.
plan heads --devices 1 --tp 1 --set hidden=80 --set heads=1
SBP_DOUBLE_SHARED=101376 fails 2 'attention has heads of 80 features, device cuda has kernels of 64 in f32' \
    heads none
SBP_DOUBLE_SHARED=101376 verified heads --dtype bf16
family wide llama-3.1-8b --tp 2 --set head_dim=80
SBP_DOUBLE_SHARED=101376 fails 2 'attention has heads of 80 features, device cuda has kernels of 64 in f32' \
    wide none
SBP_DOUBLE_SHARED=49152 fails 2 'attention has heads of 8 features, device cuda has kernels of 0 in f32' \
    one none
plan large --devices 1 --tp 1 --set vocab=2000000 --set hidden=64
fails 2 'place 0 of a stage needs .* of memory on device cuda, 1.97 GiB are free' large none

# A kernel that does nothing, in the forward pass and later, and products that fail.
for launch in 42 62 80; do
    fails 1 '^verification FAILED: step 1: ' one kernel:$launch --dtype bf16 --verify
done
fails 2 'device cuda: cudaStreamQuery: unspecified launch failure' one launch:40 --dtype bf16
# The first kernel, those that fill weights, and what is waited for between: the reason is not lost.
fails 2 'device cuda: cudaStreamQuery: unspecified launch failure' one launch:1
fails 2 'device cuda: cudaStreamQuery: unspecified launch failure' one launch:2
fails 2 'device cuda: cudaStreamQuery: an illegal memory access' one cudaStreamQuery:40
fails 2 'device cuda: cudaMemcpyAsync: an illegal memory access' one cudaMemcpyAsync:1
fails 2 'device cuda: cublasGemmEx: a failure of the stand-in' one cublasGemmEx:7 --dtype bf16
fails 2 'device cuda: cublasLtMatmul: a failure of the stand-in' one cublasLtMatmul:3 --dtype bf16
fails 2 'device cuda: cublasLtMatmul: a failure of the stand-in' one cublasLtMatmulAlgoGetHeuristic:2
# Of some sizes there is no product with a bias: it is added behind one.
SBP_DOUBLE_FAIL=bias:1 verified one --dtype bf16
fails 2 'no [0-9]* bytes on device cuda' one cudaMalloc:3
fails 2 'device cuda: the scratch of collectives: cudaMalloc: out of memory' one cudaMalloc:2
fails 2 'device cuda: the scratch of kernels: cudaMalloc: out of memory' one cudaMalloc:1
fails 2 'device cuda: cannot be loaded' one dlopen:1
fails 2 'device cuda has no kernels of f64, legal are f32, bf16 and f16' one none --dtype f64
SBP_DOUBLE_DEVICES=0 fails 2 'device cuda: place 0 of the host finds no GPU: cudaGetDeviceCount: ' one none
