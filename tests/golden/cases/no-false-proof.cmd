# Nobody asks for the gradient of what comes before the first weights: it takes no memory.
cat >m.json <<'END'
{"name": "m", "global_batch": 48, "features": 48, "layers": [{"op": "relu"}, {"op": "linear", "out": 144, "bias": false}, {"op": "relu"}, {"op": "cross_entropy"}], "precision": {"param": "fp32", "compute": "bf16", "activation": "bf16", "grad": "bf16", "accumulate": "fp32", "loss": "fp32"}}
END
cat >c.json <<'END'
{"name": "c", "levels": [{"name": "o", "size": 4, "alpha_s": 1e-6, "beta_s_per_byte": 1e-9}, {"name": "i", "size": 6, "alpha_s": 1e-6, "beta_s_per_byte": 1e-9}], "device": {"memory_bytes": 1e15, "flops": {"fp32": 1e12, "bf16": 2e12}, "memory_bytes_per_s": 1e11, "kernel_launch_s": 3e-6, "host_link_bytes_per_s": 1e10}}
END
for limit in 12927 12928; do
    sbplan search m.json c.json --memory-limit $limit --set pipeline=2 --set chunks=1 --set micro_batch=8 --set zero=3 --set recompute_every=3 --set bucket_parameters=1024 --set schedule=1f1b --set recompute=attention --set gather_blocks=true --set regather=false --set keep_sent=false --set offload=false --set stage_cut=flops | grep -E 'infeasible:|^search|no strategy'
done
# A search that looked at one candidate has proved nothing.
sbplan search gpt2-small a100-sxm-8 --memory-limit 1500M --max-evaluations 1 | grep 'no strategy'
