grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.000202]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
for row in 2048:0.0002 512:0.0004 8192:0.000125; do
    echo '{"run":0,"rows":1048576,"row_bytes":'${row%:*}',"s":['${row#*:}']}'
done >>c.samples.jsonl
sbplan calibrate --from c.samples.jsonl --method paper -o c.json | grep -e dispatch
sed -n '/dispatch_eff/,/}/p' c.json
sed '/"rows"/s/0\.000/0.0001/' c.samples.jsonl >faster.samples.jsonl
sbplan calibrate --from faster.samples.jsonl --diff c.samples.jsonl --method paper | grep -e 'rows by'
# Rows of 256 floats and of 1024; a model without experts moves none, nor does a file without the key.
for model in mixtral-8x7b qwen3-8b; do
    for hidden in 256 1024; do
        small="--set layers=1 --set heads=4 --set kv_heads=4 --set head_dim=64 --set hidden=$hidden --set ffn=64 --set vocab=256 --set sequence=64 --set global_batch=8 --set precision=fp32"
        sbplan price $model c.json --devices 1 --tp 1 $small | grep -e ^step
        sbplan price $model c.json --devices 1 --tp 1 $small --set cluster.device.dispatch_efficiency.efficiency=[1,1,1] | grep -e ^step
    done
done
