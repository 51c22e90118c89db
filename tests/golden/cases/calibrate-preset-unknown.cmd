sbplan calibrate --from $DATA/logs/job.log --device-preset h100
