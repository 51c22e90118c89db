grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.000202]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
for m in 64 128; do
    for pass in forward weight_gradient; do
        sizes='"m":'$m',"n":256,"k":512,"pass":"'$pass'"'
        echo '{"run":0,"gemm":"fp32",'$sizes',"s":['$m'e-6]}'
        echo '{"run":0,"grouped":"fp32",'$sizes',"experts":8,"s":['$((m * 10))'e-6]}'
    done
done >>c.samples.jsonl
sbplan calibrate --from c.samples.jsonl --method paper -o c.json | grep experts
sed -n '/grouped_eff/,/}/p' c.json
sed '/"grouped"/d' c.samples.jsonl >single.samples.jsonl
sbplan calibrate --from single.samples.jsonl --method paper -o single.json | grep -c experts
grep -c grouped single.json
for file in single c; do
    sbplan price mixtral-8x7b $file.json --tp 8 --set layers=1 --set global_batch=8 | grep ^step
done
sed 's/0e-6]}/0e-7]}/' c.samples.jsonl >faster.samples.jsonl
sbplan calibrate --from faster.samples.jsonl --diff c.samples.jsonl --method paper | grep 'experts:'
