for target in deepspeed fsdp2 dtensor megatron galvatron chakra; do
    sbplan search tiny-gpt laptop-4 --target $target -o plan.json | grep -e ^layout -e ^step
    sbplan export plan.json --to $target -o file | sed -n "/^lost/,/^step/p"
done
# A layout of Megatron-LM is read back to the same price; a stage that does not fit is no layout.
SMALL='tiny-gpt laptop-4 --set cluster.device.memory_bytes=1e6'
sbplan search $SMALL --target megatron -o plan.json | grep -e ^search -e ^layout -e ^step
sbplan export plan.json --to megatron -o args | sed -n "/^lost/,/^memory/p"
sbplan price $SMALL --megatron "$(cat args)" | grep -e ^step
sbplan search $SMALL --target megatron --json | grep -e covers -e '"status"'
sbplan search tiny-gpt laptop-4 --target galvatron --memory-limit 100K | grep -e ^search -e ^infeasible
