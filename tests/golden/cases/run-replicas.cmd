# Replicas hand sums of gradients on, by either rule, with one device each and with two.
set="--set tied=false --set layers=4 --set global_batch=16 --set allow_delayed_gradients=true"
for schedule in cdp-v1 cdp-v2; do
    for n in 2 4; do
        sbplan search tiny-gpt laptop-4 $set --set schedule=$schedule --set pipeline=$n --set chunks=$n -o plan.json | grep -E '^parallel|^layout|^step|^memory' || exit
        sbplan explain plan.json | grep -E '^traffic' || exit
        sbplan run plan.json --steps 3 --verify --trace trace.json | grep -o "^verified: every gradient, loss and update agrees" || exit
    done
done
sbplan price tiny-gpt laptop-4 --tp 2 --micro-batch 8 $set --set schedule=cdp-v2 --set pipeline=2 --set chunks=2 | grep -E '^layout'
