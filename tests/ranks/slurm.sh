#!/bin/sh
# Calibrations under a real Slurm, on two hosts of a cluster of this machine: what srun connects, what
# it leaves unconnected, job scripts, ranks and jobs that are killed, and going on after them.
#
# With the stand-ins' programs the commands for a cluster of GPUs are among them.
#
# usage: slurm.sh SBPLAN SBPLAN-CALIBRATE SBPLAN-RUN CONFIGS [CALIBRATE-DOUBLE RUN-DOUBLE]
set -eu

if [ "${1-}" != --inside ]; then
    cluster=$(cd "$(dirname "$0")" && pwd)/slurm_cluster.sh
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    trap 'exit 1' HUP INT TERM
    status=0
    "$cluster" 2 4 "$0" --inside "$folder" "$@" || status=$?
    exit $status
fi

folder=$2 sbplan=$(realpath "$3") calibrate=$(realpath "$4") run=$(realpath "$5") configs=$(realpath "$6")
shift 6
[ $# -eq 0 ] || set -- "$(realpath "$1")" "$(realpath "$2")"
PATH=$(dirname "$sbplan"):$(dirname "$calibrate"):$(dirname "$run"):$PATH
# Ranks outnumber the cores of most machines that run this.
OMPI_MCA_mpi_yield_when_idle=1
export PATH OMPI_MCA_mpi_yield_when_idle
cd "$folder"

fail() {
    echo "FAILED: $*" >&2
    tail -n 20 "$(dirname "$SLURM_CONF")"/slurmctld.log "$(dirname "$SLURM_CONF")"/n?.log >&2
    exit 1
}

# says FILE TEXT
says() {
    grep -q -- "$2" "$1" || fail "$1 does not say \"$2\": $(cat "$1")"
}

# under STATUS FILE COMMAND...: what it prints goes to the file.
under() {
    expected=$1 file=$2 status=0
    shift 2
    timeout $((120 * ${SBP_TIMEOUT_SCALE:-1})) "$@" >"$file" 2>&1 || status=$?
    [ $status -eq "$expected" ] || fail "exit status $status, not $expected: $*: $(cat "$file")"
}

small='--collectives send-recv --max-bytes 4K --runs 3 --budget-s 3'

# --- what srun connects ---

under 0 two.out srun --mpi=pmix -N 2 --ntasks-per-node=2 sbplan calibrate $small -o two.json
says two.out ': 4 ranks on 2 hosts '
[ "$(grep -c '^wrote two.json' two.out)" -eq 1 ] || fail "ranks speak: $(cat two.out)"
says two.samples.jsonl '"host_of_rank":\["n0","n0","n1","n1"\]'
says two.samples.jsonl '"launcher":"srun --mpi=pmix","job":"Slurm [0-9]*\.0, partition all"'
says two.json '"launcher":.*"srun --mpi=pmix"'

under 0 uneven.out srun --mpi=pmix -N 2 -n 4 sbplan-calibrate $small -o uneven.json
says uneven.samples.jsonl '"host_of_rank":\["n0","n0","n0","n1"\]'

"$sbplan" search --runnable "$configs/models/tiny-gpt.json" "$configs/clusters/laptop-4.json" \
    -o plan.json >search.out
under 0 run.out srun --mpi=pmix -N 2 --ntasks-per-node=2 sbplan run plan.json --verify
says run.out '^verified'

# --- GPUs: the commands of docs/run.md over the stand-ins, smaller ---

if [ $# -gt 0 ]; then
    mkdir gpus
    cp "$sbplan" gpus/sbplan
    # Hosts, which are one machine, have GPUs of their own.
    for name in calibrate run; do
        printf '#!/bin/sh\nSBP_DOUBLE_FIRST=$((4 * SLURM_NODEID)) exec %s "$@"\n' "$1" >gpus/sbplan-$name
        chmod +x gpus/sbplan-$name
        shift
    done
    SBP_DOUBLE_RUN=$$ SBPLAN_CONFIGS=$configs
    export SBP_DOUBLE_RUN SBPLAN_CONFIGS
    gpus='srun --mpi=pmix --kill-on-bad-exit=1 -N 2 --ntasks-per-node=2 --gpus-per-task=1'
    under 0 gpu.out env SBP_DOUBLE_KERNEL_S=0.1 $gpus gpus/sbplan calibrate --backend nccl $small -o gpu.json
    says gpu.out ': 4 ranks on 2 hosts (stand-in GPU), backend nccl'
    under 0 search.out gpus/sbplan search tiny-gpt gpu.json --runnable --set layers=1 --set hidden=16 \
        --set heads=2 --set sequence=8 --set vocab=32 --set global_batch=4 -o gpu.plan.json
    under 0 run.out $gpus gpus/sbplan run gpu.plan.json --backend nccl --device cuda --steps 2 --verify
    says run.out '^verified'
    says run.out '(nccl, cuda, '
    rm -f /dev/shm/nccl-double-$$-*
fi

# --- what it does not ---

# refuse NAME COMMAND...: begins it, all of them at a time, since ranks wait for rank 0 to speak.
refuse() {
    name=$1
    shift
    {
        status=0
        timeout $((120 * ${SBP_TIMEOUT_SCALE:-1})) srun -N 2 -n 2 "$@" >"$name.err" 2>&1 || status=$?
        echo "status $status" >>"$name.err"
    } &
}

# refused NAME TEXT: rank 0 alone said why.
refused() {
    says "$1.err" '^status 2$'
    says "$1.err" "$2"
    [ "$(grep -c '^sbplan-[a-z]*: ' "$1.err")" -eq 1 ] || fail "not one line: $(cat "$1.err")"
}

unconnected='the launcher started 2 processes, which MPI does not connect'
refuse none --mpi=none sbplan calibrate $small -o none.json
refuse alone --mpi=none sbplan run plan.json
refuse threads --mpi=pmix sbplan calibrate --backend threads $small -o none.json
refuse word --mpi=pmix sbplan-calibrate --budgets 1 -o none.json
wait
refused none "$unconnected"
refused alone "$unconnected"
refused threads 'but the launcher started 2'
refused word 'did you mean "--budget-s"'
[ ! -e none.json ] && [ ! -e none.samples.jsonl ] || fail 'processes measured alone'

# Whether an MPI library knows PMI2 is its own affair: all ranks calibrate, or none does.
if srun --mpi=pmi2 -N 2 -n 4 sbplan calibrate $small -o pmi2.json >pmi2.out 2>&1; then
    says pmi2.out ': 4 ranks on 2 hosts '
else
    [ ! -e pmi2.json ] && [ ! -e pmi2.samples.jsonl ] || fail "some ranks measured: $(cat pmi2.out)"
fi

# --- jobs ---

is_over() {
    case $(scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p') in
    PENDING | RUNNING | COMPLETING) return 1 ;;
    esac
}

# within SECONDS COMMAND...
within() {
    tries=$(($1 * 10 * ${SBP_TIMEOUT_SCALE:-1}))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "takes too long: $*: $(cat ./*.log)"
        sleep 0.1
    done
}

# submit SCRIPT: $job
submit() {
    job=$(sbatch --parsable "$1") || fail "sbatch does not take $1: $(cat "$1")"
}

# ended STATE: how the job did, in $log.
ended() {
    within 120 is_over
    log=$(echo ./*".$job.log")
    scontrol show job "$job" | grep -q "JobState=$1 " ||
        fail "job $job did not end as $1: $(scontrol show job "$job") $(cat "$log")"
}

has_cells() { # NUMBER
    [ -e job.samples.jsonl ] && [ "$(wc -l <job.samples.jsonl)" -gt "$1" ]
}

# A script of a rank a host, which has hours to measure, and one that stops at once.
"$sbplan" calibrate --print-sbatch --nodes 2 --ranks-per-node 1 --max-bytes 16K --runs 100 \
    --budget-s 9000 --collectives send-recv -o job.json >job.sh
sed 's/--budget-s 9000/--budget-s 1/; s/--runs 100/--runs 2/' job.sh >short.sh

submit short.sh
ended COMPLETED
says "$log" ': 2 ranks on 2 hosts '
says "$log" '^wrote job.json and job.samples.jsonl'
rm job.json job.samples.jsonl

# A rank that dies ends the others, and the log says which it was.
submit job.sh
within 120 has_cells 5
rank=$(ip netns pids n1 | while read -r pid; do
    ! grep -q '^sbplan-calibrat' "/proc/$pid/comm" || echo "$pid"
done)
kill -KILL $rank
ended FAILED
says "$log" 'n1: task 1: Killed'
[ ! -e job.json ] || fail 'a cluster file of a calibration that did not end'

# The same job goes on, is cancelled, and goes on again.
cells=$(wc -l <job.samples.jsonl)
submit job.sh
within 120 has_cells $((cells + 5))
scancel "$job"
ended CANCELLED
says "$log" 'of [0-9]* cells are measured, going on'
says "$log" 'CANCELLED AT'
sed 's/--budget-s 9000/--budget-s 1/' job.sh >end.sh
submit end.sh
ended COMPLETED
says "$log" 'of [0-9]* cells are measured, going on'
says "$log" '^wrote job.json and job.samples.jsonl'
measured=$(sed -n 's/,"took_s".*//p' job.samples.jsonl | sort | uniq -d)
[ -z "$measured" ] || fail "measured twice: $measured"

# mpirun in a job's script asks Slurm for its hosts.
printf '#!/bin/sh\nsbplan calibrate -n 4 %s -o within.json\n' "$small" >within.sh
job=$(sbatch --parsable -N 2 --ntasks-per-node=2 -o within.%j.log within.sh)
ended COMPLETED
says "$log" ': 4 ranks on 2 hosts '
says within.samples.jsonl '"launcher":"mpirun","job":"Slurm '
