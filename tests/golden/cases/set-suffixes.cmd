# A suffix means the same in --set and in options: powers of 1000, of bytes of 1024; Ki, Mi of 1024.
shown() { sbplan search tiny-mlp laptop-4 --space data-parallel "$@" -o plan.json >/dev/null && tr -d '\t' <plan.json | grep -E "\"($keys)\""; }
keys='global_batch|bucket_parameters|memory_bytes|host_link_bytes_per_s|reserve_bytes'
shown --set global_batch=1k --set bucket_parameters=16Mi --set cluster.device.memory_bytes=2G --set cluster.device.reserve_bytes=1Mi
shown --set global_batch=1Ki --set bucket_parameters=16M --set cluster.device.host_link_bytes_per_s=25G
sbplan search tiny-mlp laptop-4 --set global_batch=1kB
