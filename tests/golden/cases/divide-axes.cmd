# labels that break a class are mended by axes that go together, too: halves of it cost 58 % more
cat >model.json <<'END'
{"name": "m", "global_batch": 12, "features": 12, "layers": [
    {"op": "linear", "name": "f0", "out": 6}, {"op": "linear", "name": "f1", "out": 8},
    {"op": "linear", "name": "f2", "out": 6}, {"op": "linear", "name": "f3", "out": 96}]}
END
cat >cluster.json <<'END'
{"name": "c", "levels": [
    {"name": "outer", "size": 2, "alpha_s": 1e-7, "beta_s_per_byte": 1e-11},
    {"name": "inner", "size": 4, "alpha_s": 1e-7, "beta_s_per_byte": 1e-11}],
 "device": {"memory_bytes": 1e9, "flops": {"fp32": 1e10}, "memory_bytes_per_s": 1e8}}
END
sbplan search model.json cluster.json --set pipeline=1 --set micro_batch=12 --set recompute=none --set zero=0 |
    grep -E '^(search|step)'
