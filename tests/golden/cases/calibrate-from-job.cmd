sbplan calibrate --from $DATA/logs/job.log $DATA/logs/all_gather.log
