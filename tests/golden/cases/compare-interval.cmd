# Tables of plans on measured groups: intervals of the step, those of a search by itself, and stars.
sbplan calibrate --from $DATA/logs/job.log $DATA/logs/all_gather.log -o two.json --device-preset h100-sxm --ports 8 --cluster-nodes 16 --quiet 2>log
sbplan compare tiny-gpt two.json --devices 16 --set global_batch=16 | grep -E '^(space|data-parallel|zero-3|myelin|full|interval)'
sbplan compare tiny-gpt two.json --devices 16 --set global_batch=16 --json >compare.json
sbplan search tiny-gpt two.json --devices 16 --space data-parallel --sweep global_batch=16,32
sbplan search tiny-gpt two.json --devices 16 --space data-parallel --sweep global_batch=16 --json >sweep.json
sbplan search tiny-gpt two.json --devices 16 --space data-parallel --set global_batch=16 --json >search.json
trust() { grep -E '"(step_low_s|step_high_s)":' "$1" | tr -d '\t'; }
trust search.json | head -2
trust sweep.json | head -2
trust compare.json | head -2
