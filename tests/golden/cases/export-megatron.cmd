P='llama-3.1-8b dgx-h100-8x8 --set global_batch=256'
sbplan search $P --tp 4 --pp 2 -o plan.json >search.out && sbplan export plan.json --to megatron -o args && cat args &&
    sbplan price $P --megatron "$(cat args)" | grep -e ^step -e ^memory
