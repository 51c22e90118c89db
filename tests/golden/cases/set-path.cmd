sbplan search tiny-mlp laptop-4 --set model.global_batch=16 --set layers[0].out=256 --set layers[2].in=256 --set cluster.levels[0].size=2 --set cluster.device.kernel_launch_s=1e-6 -o plan.json | grep -E '^(model|cluster)'
sbplan search tiny-mlp laptop-4 --set cluster.levels[0].size=8 --set devices=4 | grep -E '^cluster'
grep -oE '"(size|out|kernel_launch_s)":[[:space:]]*[0-9.e+-]+' plan.json | tr -d '\t' | sort -u
