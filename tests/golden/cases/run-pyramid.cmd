# N (N + 1) / 2 groups of devices take turns at N stages, by either rule, with one device each and with two.
set="--set tied=false --set layers=4 --set allow_delayed_gradients=true --set pyramid=true"
for schedule in cdp-v1 cdp-v2; do
    for n in 2 3 4; do
        devices=$((n * (n + 1) / (n == 2 ? 1 : 2)))
        sbplan search tiny-gpt laptop-4 --set cluster.levels[0].size=$devices $set --set global_batch=$((4 * n)) --set schedule=$schedule --set pipeline=$n -o plan.json | grep -E '^parallel|^layout|^step|^memory' || exit
        sbplan explain plan.json | grep -E '^traffic' || exit
        sbplan run plan.json --steps 4 --verify --trace trace.json | grep -o "^verified: every gradient, loss and update agrees" || exit
    done
done
