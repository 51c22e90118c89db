grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
sbplan calibrate --from c.samples.jsonl
