search() { sbplan search gpt2-small dgx-h100-8x8 --devices 16 --set vocab_multiple=1 "$@" 2>&1; }
search --fix head=column:1/2
search --space megatron-node --set heads=16 --set hidden=1024
sbplan search gpt2-small dgx-h100-8x8 --set micro_batch=1 --space megatron \
    --fix block0.qkv=column:1/2 2>&1
search --set micro_batch=1 --space data-parallel
