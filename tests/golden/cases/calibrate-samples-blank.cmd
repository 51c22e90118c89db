grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.000202]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
sed 's/^{"sbplan_samples":1,\(.*\)}$/ { \1 , "sbplan_samples" : 1 }/' c.samples.jsonl >blank.samples.jsonl
sbplan calibrate --from blank.samples.jsonl -o blank.json --quiet
sbplan search gpt2-small blank.json | head -n 2
sed 's/^{"sbplan_samples":1/{"sbplan_samples":2/' c.samples.jsonl >later.samples.jsonl
sbplan calibrate --from later.samples.jsonl
