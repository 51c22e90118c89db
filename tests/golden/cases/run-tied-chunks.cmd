# Chunks of a stage that tie a weight add its gradients up in the step, with shards and owners, too.
for held in zero=2 zero=3 owner=broadcast owner=hand-over; do
    sbplan search tiny-gpt laptop-4 --set tied=true --set layers=4 --set global_batch=16 --set pipeline=1 --set chunks=2 --set schedule=cdp-v2 --set allow_delayed_gradients=true --set micro_batch=4 --set $held --fix embedding=batch:4 --fix head=batch:4 --fix block0.qkv=batch:4 --fix block0.projection=batch:4 --fix block0.up=batch:4 --fix block0.down=batch:4 -o plan.json >/dev/null || exit
    sbplan run plan.json --verify | grep -o "^verified: every gradient, loss and update agrees"
done
