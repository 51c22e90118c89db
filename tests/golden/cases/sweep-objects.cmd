sbplan search tiny-mlp laptop-4 --sweep 'precision=fp32,{"param": "bf16", "master": "fp32"},mixed' --sweep cluster.collectives=ring,hierarchical
