for set in cluster.devic.memory_bytes=1G cluster.device.memory_byte=1G 'cluster.levels[4].size=2' 'cluster.levels[0].sizes=2' cluster.levels.size=2 'cluster.device[0]=1' 'cluster.levels[0].size.x=1' cluster.=1 'cluster.levels[0=1' memory_bytes=1G collectives=ring 'levels[0].size=2' model.layrs=2 'layers[9].out=4' devices=three devices=3 cluster=1; do
sbplan search tiny-mlp laptop-4 --set "$set" && echo "$set: accepted"
done 2>&1; true
