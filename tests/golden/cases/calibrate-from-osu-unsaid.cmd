sbplan calibrate --from $DATA/logs/osu_allreduce.out
