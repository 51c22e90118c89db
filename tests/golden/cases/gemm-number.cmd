sbplan search tiny-gpt laptop-4 --set cluster.device.gemm=0.6
