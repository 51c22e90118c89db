sbplan calibrate --from $DATA/logs/job.log $DATA/samples/newer.samples.jsonl
