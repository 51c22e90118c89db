sbplan calibrate --from $DATA/logs/job.log --quiet
