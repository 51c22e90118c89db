grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.000202]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
for bytes in 16 32 64 2048; do
    echo '{"run":0,"collective":"all-reduce","nodes":2,"ranks_per_node":4,"groups":1,"bytes":'$bytes',"s":[1e8]}'
done >>c.samples.jsonl
sbplan calibrate --from c.samples.jsonl -o c.json
status=$?
ls
sbplan calibrate --from c.samples.jsonl --json
sbplan calibrate --from c.samples.jsonl --quiet # without a file that search might read
exit $status
