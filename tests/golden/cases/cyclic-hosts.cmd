# Hosts bound no step without a flush: no search claims more than another one finds.
set="--set schedule=cdp-v2 --set allow_delayed_gradients=true --set pipeline=2 --set micro_batch=8"
for algorithm in exact coordinate-descent metropolis-hastings; do
    sbplan search $DATA/cyclic-model.json $DATA/slow-host.json $set --algorithm $algorithm | grep -E '^search|^step'
done
