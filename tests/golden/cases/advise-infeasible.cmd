sbplan advise tiny-gpt laptop-4 --set cluster.device.memory_bytes=100K
