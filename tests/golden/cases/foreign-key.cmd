for word in tensor=4 tp=8 data=32 sequence_parallel=false nodes=16 gpus=8 zero=fsdp fsdp=true \
    batch_size=64 seq_len=128 dtype=bf16 device.memory_bytes=8G memory=8G reserve_bytes=1G; do
    sbplan search tiny-gpt dgx-h100-8x8 --set $word 2>&1
done
sbplan search tiny-gpt dgx-h100-8x8 --set note=16
