# The placements of DTensor, in OneFlow's words.
sbplan search tiny-gpt laptop-4 --runnable --fix block0.up=column:2,row:2 -o plan.json >/dev/null
sbplan export plan.json --to oneflow -o oneflow.json && sbplan export plan.json --to dtensor -o dtensor.json >/dev/null
sed 's/sbplan oneflow/sbplan dtensor/; s/"split(\([0-9]\))"/"Shard(\1)"/g; s/"broadcast"/"Replicate()"/g
    s/"partial_sum"/"Partial()"/g' oneflow.json | diff - dtensor.json && echo 'the same placements'
grep -m 1 -A 3 '"block0.up.weight"' oneflow.json
grep -c partial_sum oneflow.json
