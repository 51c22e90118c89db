sbplan calibrate --from $DATA/logs/job.log -o two.json
