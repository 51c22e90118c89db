# What a pyramid does not take, each by name.
size="--set cluster.levels[0].size"
set="--set layers=4 --set global_batch=12 --set schedule=cdp-v2 --set allow_delayed_gradients=true --set pipeline=3 --set pyramid=true"
sbplan search tiny-gpt laptop-4 $size=6 $set
sbplan search tiny-gpt laptop-4 $size=4 $set --set tied=false
for other in clip_norm=1 precision=fp16 zero=1 owner=broadcast offload=true micro_batch=2 chunks=3 pipeline=1 schedule=1f1b global_batch=16 stage_cut=2,2; do
    sbplan search tiny-gpt laptop-4 $size=6 $set --set tied=false --set $other
done
sbplan search tiny-gpt laptop-4 $size=6 $set --set tied=false -o plan.json >/dev/null
sbplan export plan.json --to megatron -o args
sbplan run plan.json --dtype f16
