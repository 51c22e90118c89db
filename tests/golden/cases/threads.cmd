# The answer, and what a plan records of its search, do not depend on how many threads there are.
for threads in 1 3; do
    sbplan search tiny-mlp laptop-4 --memory-limit 1000 --threads $threads --json >$threads.json
    sbplan search tiny-mlp laptop-4 --threads=$threads -o $threads.plan >$threads.out
done
sed -i 's/"wall_s":.*/"wall_s": 0/' 1.json 3.json
cmp 1.json 3.json
cmp 1.plan 3.plan
grep -h '"needed_bytes"\|"command"' 3.json 3.plan
sbplan search tiny-mlp laptop-4 --threads 65
