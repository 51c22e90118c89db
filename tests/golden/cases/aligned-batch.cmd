# where labels leave a poor plan, one whose layers all split the batch alike may cost 29 % less
cat >model.json <<'END'
{"name": "m", "global_batch": 2, "features": 12, "layers": [
    {"op": "linear", "name": "f0", "out": 16}, {"op": "linear", "name": "f1", "out": 4},
    {"op": "linear", "name": "f2", "out": 8}, {"op": "linear", "name": "f3", "out": 6}]}
END
cat >cluster.json <<'END'
{"name": "c", "levels": [
    {"name": "outer", "size": 2, "alpha_s": 1e-5, "beta_s_per_byte": 1e-9},
    {"name": "middle", "size": 2, "alpha_s": 1e-5, "beta_s_per_byte": 1e-9},
    {"name": "inner", "size": 2, "alpha_s": 1e-7, "beta_s_per_byte": 1e-9}],
 "device": {"memory_bytes": 1e9, "flops": {"fp32": 1e9}, "memory_bytes_per_s": 1e9}}
END
sbplan search --quick model.json cluster.json --set pipeline=1 --set micro_batch=2 --set recompute=none --set zero=0 |
    grep -E '^(search|step)'
