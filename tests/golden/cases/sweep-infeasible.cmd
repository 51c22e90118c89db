sbplan search tiny-mlp laptop-4 --sweep cluster.device.memory_bytes=8K,40K,1M
sbplan search tiny-mlp laptop-4 --sweep cluster.device.memory_bytes=8K,9K
