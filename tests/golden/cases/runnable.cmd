# Search asks what `run` asks: operators that have kernels, cuts of a step that run.
sbplan search --runnable "$DATA/custom-layer.json" laptop-4
sbplan search --runnable tiny-gpt laptop-4 --space summa | grep -E '^(search|step|block0.qkv)'
sbplan search --runnable vgg-13 laptop-4 --set global_batch=8 --quick | head -3
sbplan search --runnable tiny-gpt laptop-4 --set zero=1 --set pipeline=1
sbplan search --runnable tiny-gpt laptop-4 --set micro_batch=2 --set pipeline=1
sbplan search --runnable tiny-gpt laptop-4 --set pipeline=2 | head -6
sbplan search --runnable tiny-gpt laptop-4 --set pipeline=2 --set schedule=interleaved --set chunks=2 --set micro_batch=2 | head -6
sbplan search --runnable tiny-gpt laptop-4 --set offload=true \
    --set cluster.device.host_link_bytes_per_s=1e10 --set cluster.device.host_memory_bytes=1e10 | head -8
for set in chunk_factor=2 zero=1 clip_norm=1; do
    sbplan search --runnable tiny-gpt laptop-4 --set offload=true --set chunk_factor=1 --set $set \
        --set cluster.device.host_link_bytes_per_s=1e10 --set cluster.device.host_memory_bytes=1e10 | grep parallel
done
sbplan search --runnable tiny-gpt laptop-4 --set micro_batch=2 --set schedule=message-driven --set pipeline=4 | head -6
sbplan search --runnable tiny-gpt laptop-4 --set micro_batch=2 --set schedule=cdp-v1
# What a rotary would overwrite is read by others; sinks need attention that is flash.
sbplan search --runnable llama-3.1-8b laptop-4 --set sinks=true --set attention=materialised
for behind in linear tanh; do
    printf '{"name": "m", "global_batch": 8, "precision": "fp32", "sequence": 4, "input": "free", "layers": [
{"op": "linear", "name": "a", "in": 8, "out": 8, "out_heads": 2}, {"op": "%s"%s}, {"op": "rotary", "name": "turned"},
{"op": "linear", "name": "b", "inputs": ["a"], "out": 8, "out_heads": 2}, {"op": "add", "inputs": ["b", "turned"]}]}' \
        "$behind" "$([ $behind = tanh ] || echo ', "out": 8, "out_heads": 2')" >rotary.json
    sbplan search --runnable rotary.json laptop-4
done
# Micro-batches need no less memory where all of them are in flight.
sbplan search --runnable tiny-gpt laptop-4 --set pipeline=1 --set schedule=gpipe --memory-limit 600K
