#!/bin/sh
# Whatever call of CUDA or NCCL fails, on one rank or on all, the run ends, and says which it was.
# usage: nccl_failures.sh TEST_COMM_NCCL MPIRUN FLAGS...
set -u
program=$1
shift
bad=0
export SBP_DOUBLE_RUN=$$
trap 'rm -f /dev/shm/nccl-double-$$-*' EXIT

ends() { # STATUS TEXT VARIABLE=CALL:N[@RANK] MPIRUN FLAGS... -n RANKS PROGRAM WORDS
    expected=$1 text=$2 planted=$3
    shift 3
    status=0
    output=$(timeout -k 5 $((60 * ${SBP_TIMEOUT_SCALE:-1})) env "$planted" "$@" 2>&1) || status=$?
    if [ "$status" -ne "$expected" ] || ! printf '%s\n' "$output" | grep -q "$text"; then
        printf '%s: exit %s, expected %s and "%s" in:\n%s\n' "$planted" "$status" "$expected" "$text" "$output"
        bad=1
    fi
}

expect_end() { # TEXT VARIABLE=CALL:N[@RANK]
    text=$1 planted=$2
    shift 2
    ends 2 "$text" "$planted" "$@" -n 3 "$program" work
}

expect_end 'rank [0-2]: .*ncclAllReduce: unhandled error.*: stand-in' SBP_DOUBLE_FAIL=ncclAllReduce:2@1 "$@"
expect_end 'rank [0-2]: .*ncclSend: unhandled' SBP_DOUBLE_FAIL=ncclSend:1@2 "$@"
expect_end 'rank [0-2]: .*ncclGroupEnd: unhandled' SBP_DOUBLE_FAIL=ncclGroupEnd:1@0 "$@"
expect_end 'rank [0-2]: .*ncclCommInitRankConfig: unhandled' SBP_DOUBLE_FAIL=ncclCommInitRankConfig:1@1 "$@"
expect_end 'rank [0-2]: .*ncclGetUniqueId: unhandled' SBP_DOUBLE_FAIL=ncclGetUniqueId:1@0 "$@"
expect_end 'rank 1: ncclCommDestroy: unhandled' SBP_DOUBLE_FAIL=ncclCommDestroy:1@1 "$@"
expect_end 'rank 2: .*cudaStreamQuery: an illegal memory access' SBP_DOUBLE_FAIL=cudaStreamQuery:9@2 "$@"
expect_end 'rank [0-2]: cudaStreamCreateWithFlags: out of memory' SBP_DOUBLE_FAIL=cudaStreamCreateWithFlags:1 "$@"
expect_end 'rank [0-2]: cudaMemPoolSetAttribute: ' SBP_DOUBLE_FAIL=cudaMemPoolSetAttribute:1@0 "$@"
expect_end 'rank [0-2]: cudaMallocAsync: out of memory' SBP_DOUBLE_FAIL=cudaMallocAsync:1@0 "$@"
expect_end 'rank 1 (host .*) has no GPU: cudaSetDevice' SBP_DOUBLE_FAIL=cudaSetDevice:1@1 "$@"
expect_end 'rank [0-2]: .*ncclCommSplit: unhandled' SBP_DOUBLE_FAIL=ncclCommSplit:2@1 "$@"
expect_end 'rank 1: ncclCommFinalize: unhandled' SBP_DOUBLE_FAIL=ncclCommFinalize:1@1 "$@"
# Communicators that another rank's failure keeps from being made.
expect_end 'rank 1: group: ncclCommInitRankConfig: remote' SBP_DOUBLE_STALL=ncclCommInitRankConfig:1@1 "$@"
expect_end 'rank 1: group: ncclCommSplit: remote' SBP_DOUBLE_STALL=ncclCommSplit:2@1 "$@"
# Work that never ends on the device of one rank.
for call in ncclAllReduce ncclAllGather ncclRecv; do
    expect_end 'rank 1: .*NCCL, meanwhile: remote process exited' SBP_DOUBLE_STALL=$call:2@1 "$@"
done
# Two axes and the world are three splits, whatever is named twice: there is no fourth one to fail.
ends 2 'rank 3: ncclCommSplit: unhandled' SBP_DOUBLE_FAIL=ncclCommSplit:3@3 "$@" -n 4 "$program" mesh
ends 0 '' SBP_DOUBLE_FAIL=ncclCommSplit:4@3 "$@" -n 4 "$program" mesh
# Work of a group, and of an open channel, that never ends is called off.
ends 2 'rank [01]: called off' SBP_DOUBLE_RUN=$$ "$@" -n 2 "$program" 'called off'
exit $bad
