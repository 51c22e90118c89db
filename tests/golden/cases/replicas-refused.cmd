# What replicas do not take, each by name.
set="--set layers=4 --set global_batch=16 --set schedule=cdp-v2 --set allow_delayed_gradients=true --set pipeline=4 --set chunks=4"
sbplan search tiny-gpt laptop-4 $set
for other in clip_norm=1 precision=fp16 zero=1 owner=broadcast offload=true micro_batch=2 chunks=2 stage_cut=2,2; do
    sbplan search tiny-gpt laptop-4 $set --set tied=false --set $other
done
sbplan search tiny-gpt laptop-4 $set --set tied=false -o plan.json >/dev/null
sbplan run plan.json --dtype f16
