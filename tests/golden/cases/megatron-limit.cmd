# a mesh whose one strategy does not fit has none: nothing is left open
sbplan search gpt2-medium v100-roce-4x8 --space megatron --memory-limit 400M | grep -E '^(search|step)'
sbplan search gpt2-medium v100-roce-4x8 --space megatron --memory-limit 380M | grep -E '^(search|infeasible|no)'
