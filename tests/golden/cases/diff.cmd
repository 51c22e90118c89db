# Which of two plans is faster, and why, in three lines: stages, clusters, recompute, ZeRO, batches.
price() { sbplan price llama-3.1-8b "$@" >price.txt; }
price dgx-h100-8x8 --set global_batch=256 --pp 1 --zero 1 -o dp.json &&
price dgx-h100-8x8 --set global_batch=256 --pp 4 --tp 4 --micro-batch 1 -o pp.json &&
price dgx-h100-8x8 --set global_batch=256 --pp 1 --zero 3 -o zero3.json &&
price dgx-h100-8x8 --set global_batch=256 --pp 1 --zero 1 --recompute full -o again.json &&
price dgx-h100-8x8 --set global_batch=512 --pp 1 --zero 1 -o twice.json &&
price dgx-a100-8x8 --set global_batch=256 --pp 1 --zero 1 -o a100.json &&
price dgx-h100-8x8 --set global_batch=256 --devices 32 --pp 1 --zero 1 -o half.json &&
for other in pp zero3 again twice a100 half dp; do
    sbplan diff dp.json $other.json | head -n 3
done &&
sbplan diff pp.json zero3.json | head -n 3 &&
# Small shards wait for the host that launches them.
sbplan price gpt2-small h100-sxm-8 --pp 1 -o wide.json >price.txt &&
sbplan price gpt2-small h100-sxm-8 --pp 1 --tp 4 -o narrow.json >price.txt &&
sbplan diff wide.json narrow.json | grep -E '^(because|waiting)' &&
# Images are no tokens.
sbplan price vit-b-16 h100-sxm-8 --pp 1 -o images.json >price.txt &&
sbplan diff wide.json images.json | head -n 1 &&
sbplan diff wide.json images.json --json | grep -A 1 '"faster"' &&
sbplan diff half.json dp.json --json | grep -E -A 4 '"faster"'
sbplan diff dp.json 2>&1
sbplan diff gpt2-small dp.json 2>&1
sbplan diff dp.json nosuch.json 2>&1
