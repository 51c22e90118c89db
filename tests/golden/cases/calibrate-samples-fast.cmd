grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.000202]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
echo '{"run":0,"collective":"all-reduce","nodes":2,"ranks_per_node":4,"groups":1,"bytes":4294967296,"s":[9e-6]}' >>c.samples.jsonl
sbplan calibrate --from c.samples.jsonl -o c.json | grep line
sbplan search gpt2-small c.json | head -n 2
sed '/all-\|send/s/"s":.*/"s":[0]}/' c.samples.jsonl >zero.samples.jsonl
sbplan calibrate --from zero.samples.jsonl -o zero.json
