sbplan calibrate --from $DATA/logs/job.log --method paper
