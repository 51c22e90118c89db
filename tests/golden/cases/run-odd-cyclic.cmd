# A stage of a relu alone updates nothing, and still hears that a step without a flush was odd.
sbplan search "$DATA/no-weights-stage.json" laptop-4 --set cluster.levels[0].size=3 --set pipeline=3 --set schedule=cdp-v1 --set micro_batch=4 --set allow_delayed_gradients=true -o plan.json >/dev/null &&
sbplan run plan.json --steps 20 | sed -n '/^FAILED/s/(step.*rank/(rank/p'
