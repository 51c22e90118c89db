# A pyramid by degrees, which count its groups.
set="--set cluster.levels[0].size=12 --set tied=false --set layers=3 --set schedule=cdp-v2 --set allow_delayed_gradients=true --set pyramid=true"
sbplan price tiny-gpt laptop-4 --pp 3 --tp 2 --micro-batch 4 --set global_batch=12 $set | grep -E '^(parallel|layout|step)' &&
sbplan price tiny-gpt laptop-4 --pp 3 --micro-batch 4 --set global_batch=24 $set --json | grep -c first_op &&
sbplan search tiny-gpt laptop-4 --set global_batch=12 --set pipeline=3 $set --top 2 | grep -E 'pyramid'
# Stages of one group hand no sums on, and explain lists none.
sbplan search tiny-gpt laptop-4 --set global_batch=12 --set pipeline=3 $set -o plan.json >/dev/null &&
sbplan explain plan.json | awk '$1 == "send-recv" { rows++; none += $8 == 0 } END { print (rows > 0), none }'
