cp $DATA/samples/newer.samples.jsonl c.samples.jsonl
cp $DATA/logs/job.log job.log
sbplan calibrate --from c.samples.jsonl -o c.samples.jsonl
sbplan calibrate --from job.log -o job.log --device-preset p100
cmp $DATA/samples/newer.samples.jsonl c.samples.jsonl && cmp $DATA/logs/job.log job.log
