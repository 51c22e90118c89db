sbplan calibrate --from $DATA/logs/job.log --merge older.json
