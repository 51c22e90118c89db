sbplan calibrate --from $DATA/logs/osu_allreduce.out --nodes 2 --ranks-per-node 4
