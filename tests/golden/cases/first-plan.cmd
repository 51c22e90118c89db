# On 16,384 devices no search comes to an end in so short a time, but a plan is there in a moment.
sed 's/"node", "size": 8/"node", "size": 2048/' "$SBPLAN_CONFIGS/clusters/dgx-a100-8x8.json" >large.json
sbplan search resnet-50 large.json --set global_batch=65536 --set precision=mixed --time-limit 4 --json |
    grep '"status"'
