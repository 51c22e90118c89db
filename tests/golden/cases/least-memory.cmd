# What is named where nothing fits is enough: a search that is given it has a plan.
check() {
    named=$(sbplan search "$@" --json | grep -o '"needed_bytes":.*[0-9]' | grep -o '[0-9]*$')
    echo "$named"
    sbplan search "$@" --set cluster.device.memory_bytes=$named --json | grep -o '"device_bytes":.*[0-9]' | head -1 | grep -o '[0-9]*$'
}
check gpt2-xl laptop-4 --devices 1
check tiny-mlp laptop-4 --set cluster.device.memory_bytes=1000
check tiny-gpt laptop-4 --space data-parallel --set cluster.device.memory_bytes=10000
check gpt2-xl laptop-4 --space megatron
check tiny-mlp laptop-4 --space autoddl --set cluster.device.memory_bytes=1000
check tiny-gpt laptop-4 --set cluster.device.memory_bytes=1000
check gpt2-small laptop-4 --set cluster.device.memory_bytes=1000
