for size in 80GB "80 GB" 80GiB "80 GiB" 80G 85899345920; do
    sbplan search tiny-mlp laptop-4 --memory-limit "$size" | grep -o "of .* a device"
    sbplan search tiny-mlp laptop-4 --set cluster.device.memory_bytes="$size" |
        grep -o "of .* a device"
done
