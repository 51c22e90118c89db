# A place that cannot be written to is told before anything else is read or searched.
mkdir plan-3.json
sbplan search nothing laptop-4 -o nowhere/plan.json
sbplan search nothing laptop-4 --problem .
sbplan search nothing laptop-4 --top 3 -o plan.json
sbplan import hf nothing.json -o nowhere/model.json --global-batch 1
ls
