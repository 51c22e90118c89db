sbplan search tiny-mlp laptop-4 --set pipeline=1 --set micro_batch=16 --set recompute=none --set offload=false --top 3 --json >out.json
grep -A 4 '"top":' out.json
grep -E '"(rank|proved|plan|change|objective_s|pipeline)":' out.json
sbplan search tiny-mlp laptop-4 --memory-limit 1K --top 3
echo $?
