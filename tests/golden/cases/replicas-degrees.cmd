# Replicas by degrees; without a flush nothing hides, whatever the trainer hides otherwise.
set="--set tied=false --set schedule=cdp-v2 --set allow_delayed_gradients=true --runtime sbplan"
sbplan price tiny-gpt laptop-4 --pp 2 --vpp 2 --micro-batch 2 $set | grep -E '^(parallel|layout|step)' &&
sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=4 $set | grep -E '^(parallel|step)'
