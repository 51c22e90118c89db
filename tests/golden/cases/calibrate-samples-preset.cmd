sbplan calibrate --from $DATA/samples/newer.samples.jsonl --device-preset p100 -o c.json
