# On 16,384 devices no search comes to an end in so short a time, but a plan is there in a moment. A
# slow machine gets more time to find one.
sed 's/"node", "size": 8/"node", "size": 2048/' "$SBPLAN_CONFIGS/clusters/dgx-a100-8x8.json" >large.json
for seconds in 4 32; do
    sbplan search resnet-50 large.json --set global_batch=65536 --set precision=mixed --time-limit $seconds --json >out.json && break
done
grep '"status"' out.json
