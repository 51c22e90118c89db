#!/bin/sh
# Files of samples: a killed calibration continues to the same list of cells as one that was left
# alone, others are refused or dropped, merged and compared; the cells of the plan are measured.
# usage: calibrate_files.sh SBPLAN CALIBRATE FIT EXPECTED
set -eu
sbplan=$(realpath "$1") calibrate=$(realpath "$2") fit=$(realpath "$3") expected=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Run, kind and size of every cell, without what was measured.
cells() {
    grep '"run":' "$1" | sed 's/,"took_s".*//' | sort
}

options='-n 2 --max-bytes 4K --budget-s 60 --runs 2 --collectives all-reduce,send-recv --quiet'

# --- planned, measured alone ---

"$calibrate" --dry-run --nodes 4 --ranks-per-node 2 --max-bytes 1G --budget-s 600 \
    --nominal 25e9 >plan.out
diff -u "$expected/plan.txt" plan.out
"$calibrate" --print-sbatch --nodes 16 --ranks-per-node 8 --max-bytes 1G --budget-s 1200 \
    -o mine.json >job.out
diff -u "$expected/job.txt" job.out
sh -n job.out
asked='--collectives all-reduce,send-recv --method paper --statistic least --weights none
--nominal 25000000000 --merge old.json --diff old.json'
"$calibrate" --print-sbatch $asked >job.out
[ "$(tail -n 1 job.out | sed 's/.* -o cluster.json //')" = "$(echo $asked)" ] ||
    fail "the job measures otherwise: $(cat job.out)"
status=0
"$calibrate" --print-sbatch --merge 'old one.json' 2>err || status=$?
[ $status -eq 2 ] && grep -q -- '--merge old one.json: cannot stand' err || fail "job: $(cat err)"

"$sbplan" calibrate --print-sbatch --backend nccl --nodes 2 --ranks-per-node 8 >job.out
grep -q '^#SBATCH --gpus-per-node=8$' job.out && grep -q 'sbplan-calibrate --backend nccl ' job.out ||
    fail "the job of GPUs measures otherwise: $(cat job.out)"

# Processes of srun that do not know each other: the first says so. What sanitizers find inside of MPI
# libraries is not ours.
for task in 0 1; do
    status=0
    ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 SLURM_STEP_NUM_TASKS=2 \
        SLURM_PROCID=$task "$calibrate" -o alone.json 2>err || status=$?
    [ $status -eq 2 ] && [ ! -e alone.samples.jsonl ] || fail "two processes calibrate: $status"
    [ "$(grep -c '^sbplan-calibrate: ' err)" -eq $((1 - task)) ] ||
        fail "process $task says: $(cat err)"
    SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$task "$calibrate" --backend threads 2>err &&
        fail 'two processes calibrate over threads'
    [ "$(grep -c 'but the launcher started 2' err)" -eq $((1 - task)) ] ||
        fail "process $task says: $(cat err)"
done

$calibrate $options -o whole.json
cells whole.samples.jsonl >whole.cells
[ "$(uniq -d whole.cells | wc -l)" -eq 0 ] || fail 'cells were measured twice'
planned=$("$calibrate" $options --dry-run | sed -n 's/^\([0-9]*\) cells a run.*/\1/p')
[ "$(wc -l <whole.cells)" -eq $((2 * planned)) ] || fail "$planned cells are planned for a run"
tail -n 1 whole.samples.jsonl | grep -q '"end":"done"' || fail 'it did not come to its end'

status=0
"$calibrate" $options -o over.jsonl 2>err || status=$?
[ $status -eq 2 ] && [ ! -e over.jsonl ] || fail "a cluster file over its samples: $(cat err)"

# --- fitted again: the same, to the byte; in another way, as measuring would have ---

mkdir again
"$fit" --from whole.samples.jsonl -o again/whole.json >out
cmp whole.json again/whole.json || fail 'fitted again, the cluster file is another one'
grep -q '^wrote again/whole.json$' out || fail "fitted again: $(cat out)"
"$fit" --from whole.samples.jsonl --method paper --statistic least --weights none --json >paper.json
for said in '"method":	"paper"' '"weights":	"none"' '"communication_times":	"least"' \
    '"name":	"rank"'; do
    grep -q "$said" paper.json || fail "fitted in another way, the file does not say $said"
done
"$fit" --from whole.samples.jsonl --quiet >out
[ ! -s out ] || fail "--quiet prints: $(cat out)"

# --- killed, torn, gone on with; twice ---

# A limit of the file's size ends it in the middle of a line.
status=0
(
    ulimit -c 0
    ulimit -f 8
    exec "$calibrate" $options -o cut.json 2>err
) || status=$?
[ $status -eq 2 ] && grep -q 'cut.samples.jsonl: cannot be written: File too large' err ||
    fail "it did not end: exit status $status: $(cat err)"
[ ! -e cut.json ] || fail 'a killed calibration wrote a cluster file'
measured=$(cells cut.samples.jsonl | wc -l)
[ -n "$(tail -c 1 cut.samples.jsonl)" ] || printf '{"run":1,"collec' >>cut.samples.jsonl
status=0
"$calibrate" $options -o cut.json --max-bytes 8K 2>err || status=$?
[ $status -eq 2 ] && grep -q 'cut.samples.jsonl: holds an unfinished calibration' err ||
    fail "other settings: exit status $status: $(cat err)"
"$calibrate" ${options% --quiet} -o cut.json >out 2>err
grep -q "^cut.samples.jsonl: [0-9]* of $((2 * planned)) cells are measured, going on" err ||
    fail "it did not go on: $(cat err)"
cells cut.samples.jsonl >cut.cells
diff -u whole.cells cut.cells || fail 'killed and gone on with, the list of cells is another one'
[ "$measured" -ge 3 ] && [ "$measured" -lt $planned ] || fail "$measured cells were measured before"
[ "$(grep -c sbplan_samples cut.samples.jsonl)" -eq 2 ] || fail 'there are not two sessions'

# --- nothing whole, and what is no file of samples ---

for begun in '' '{"sbp' '{"sbplan_samples":1,"resumes":false,"comm'; do
    printf '%s' "$begun" >begun.samples.jsonl
    $calibrate $options -o begun.json || fail "it did not begin anew behind \"$begun\""
    [ "$(grep -c sbplan_samples begun.samples.jsonl)" -eq 1 ] || fail "left \"$begun\""
done
for foreign in 'a,b' '{"sbplan"' '{"name":1}
'; do
    printf '%s' "$foreign" >foreign.samples.jsonl
    status=0
    $calibrate $options -o foreign.json 2>err || status=$?
    [ $status -eq 2 ] && grep -q '^sbplan-calibrate: foreign.samples.jsonl: .*--fresh drops' err ||
        fail "foreign file: $status: $(cat err)"
    [ "$(cat foreign.samples.jsonl)" = "${foreign%
}" ] || fail 'a foreign file was written over'
done

# --- unfinished and dropped; merged; compared ---

head -n 5 whole.samples.jsonl >drop.samples.jsonl
"$calibrate" $options -o drop.json --seed 2 --fresh
[ "$(grep -c sbplan_samples drop.samples.jsonl)" -eq 1 ] || fail '--fresh did not drop'

"$calibrate" ${options% --quiet} -o merged.json --merge whole.json --diff whole.json >out
[ "$(grep -c sbplan_samples merged.samples.jsonl)" -eq 2 ] || fail 'not merged'
[ "$(cells merged.samples.jsonl | uniq -c | awk '$1 != 2' | wc -l)" -eq 0 ] ||
    fail 'a merged file does not hold every cell twice'
grep -q '^changed from whole.samples.jsonl to merged.samples.jsonl' out || fail 'no differences'
status=0
"$calibrate" $options -o other.json --merge absent.json 2>err || status=$?
[ $status -eq 2 ] && grep -q 'absent.samples.jsonl' err || fail "merge: $status: $(cat err)"
# Copies of another size in the older session are left out, not taken for so many of this one's bytes.
first='/sbplan_samples/ { session++ } session == 1 && /"copy":/'
awk "$first { sub(/\"copy\":/, \"&9\") } 1" merged.samples.jsonl >larger.samples.jsonl
awk "$first { next } 1" merged.samples.jsonl >latest.samples.jsonl
for name in larger latest; do
    "$fit" --from $name.samples.jsonl -o $name.json --quiet
    grep memory_bytes_per_s $name.json >$name.rate
done
cmp -s merged.samples.jsonl larger.samples.jsonl && fail 'the samples have no copy'
cmp larger.rate latest.rate || fail "copies of two sizes: $(cat larger.rate latest.rate)"

# Samples of another backend or device would be taken for this one's.
for foreign in 's/"backend":"threads"/"backend":"mpi"/' 's/"device":""/"device":"GPU"/'; do
    sed "$foreign" whole.samples.jsonl >foreign.samples.jsonl
    cmp -s whole.samples.jsonl foreign.samples.jsonl && fail "the samples have none of $foreign"
    status=0
    "$calibrate" $options -o other.json --merge foreign.json 2>err || status=$?
    [ $status -eq 2 ] && grep -q 'foreign.samples.jsonl: was measured over' err || fail "merge: $(cat err)"
    [ ! -e other.samples.jsonl ] || fail 'a refused merge leaves a file'
done
"$calibrate" $options -o early.json --diff absent.json 2>err && fail 'compared with nothing'
grep -q 'absent.samples.jsonl: cannot be opened' err || fail "diff: $(cat err)"
[ ! -e early.samples.jsonl ] || fail 'it measured before it looked for what to compare with'
# The file that is written over is read before.
sed 's/"s":\[.*/"s":[9,9,9]}/' whole.samples.jsonl >self.samples.jsonl
"$calibrate" ${options% --quiet} -o self.json --diff self.json >out
grep -q '^ *all-reduce .* 0\.00 at ' out || fail "compared with itself: $(cat out)"
