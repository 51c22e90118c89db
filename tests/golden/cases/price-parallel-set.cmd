# A plan with stages, micro-batches and ZeRO priced by hand costs what the search said; --set changes
# what is around the strategy.
costs() { grep -E '"(step_s|communication_s|device_bytes)":' | head -3; }
sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=2 --set zero=1 --json -o plan.json | costs >searched
sbplan price tiny-gpt laptop-4 --strategy plan.json --json | costs >priced
cmp searched priced && echo same
sbplan price tiny-gpt laptop-4 --strategy plan.json --set zero=3 --set recompute=full --json | costs >other
cmp -s searched other || echo other
for set in pipeline=1 pipeline=4 micro_batch=1 micro_batch=3 zero=4 global_batch=3; do
sbplan price tiny-gpt laptop-4 --strategy plan.json --set $set && echo "$set: accepted"
done 2>&1
true
