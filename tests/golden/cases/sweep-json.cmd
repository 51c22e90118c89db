sbplan search tiny-mlp laptop-4 --sweep cluster.device.memory_bytes=8K,1M --sweep boxing=full,path --json >out.json
grep -E '"(version|command|values|cluster.device.memory_bytes|boxing|status|plan|changed|change|needed_bytes|available_bytes|step_s|device_bytes|micro_batch)":' out.json
