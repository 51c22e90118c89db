sbplan calibrate --from $DATA/logs/job.log --budget-s 5
