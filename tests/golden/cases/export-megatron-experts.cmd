P='mixtral-8x7b dgx-h100-8x8 --set global_batch=256'
sbplan price $P --tp 2 --etp 1 --ep 4 --pp 2 --vpp 2 --zero 1 --set cluster.device.reserve_bytes=0 -o plan.json >price.out &&
    sbplan export plan.json --to megatron -o args && cat args
