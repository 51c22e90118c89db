sed '/"end"/d' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.000202]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
cp $DATA/samples/older.samples.jsonl older
calibrate='sbplan calibrate --from c.samples.jsonl --diff older --method paper'
$calibrate -o c.json | grep -e ^wrote -e ^changed
$calibrate --json 2>changes | grep '"method"' && head -n 1 changes
$calibrate --quiet
sbplan calibrate --from c.samples.jsonl --diff absent -o d.json; ls
