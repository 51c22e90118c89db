sbplan calibrate --from $DATA/logs/job.log $DATA/logs/all_gather.log -o two.json --device-preset h100-sxm --ports 8 --cluster-nodes 16 --quiet
sbplan search gpt2-small two.json --devices 16 --space megatron --max-evaluations 1000 | grep -v evaluations
sbplan search gpt2-small two.json --devices 16 --space megatron --json | grep -A12 -E 'step_(low|high)_s|doubts'
grep -A40 quality two.json
