cd "$DATA/samples" && sbplan calibrate --from newer.json --diff older.samples.jsonl
