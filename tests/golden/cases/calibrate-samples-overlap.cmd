grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.0002]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
# Of shorter loads, as older files have without a word, nothing counts beside longer ones.
for load in '"load_s":60,"s":[0.00025]' '"load_s":6,"s":[0.00021]' '"s":[0.0002]'; do
    echo '{"run":0,"sustained":"fp64","m":64,"n":64,"k":64,'$load'}'
done >>c.samples.jsonl
echo '{"run":0,"host":true,"s":[3e-6]}' >>c.samples.jsonl
for added in all-reduce:65536:0.00025 all-reduce:16384:0.0004 all-gather:65536:0.002 reduce-scatter:65536:0.0001; do
    kind=${added%%:*} at=${added#*:}
    group='"beside":"'$kind'","nodes":1,"ranks_per_node":2,"groups":2,"bytes":'${at%:*}
    echo '{"run":0,'$group',"s":[0.001]}'
    echo '{"run":0,'$group',"products":"fp32","m":256,"n":256,"k":256,"s":['${at#*:}']}'
done >>c.samples.jsonl
# A collective whose own time is not known says nothing.
echo '{"run":0,'$group'0,"products":"fp32","m":256,"n":256,"k":256,"s":[9]}' >>c.samples.jsonl
sbplan calibrate --from c.samples.jsonl --method paper -o c.json | grep -e overlap -e device
grep -e overlap_eff -e host_launch -A 3 -e '"load_s"' c.json
sed -e '/"host"/s/3e-6/4.5e-6/' -e '/"load_s":60/s/0.00025/0.0003/' -e '/"products"/s/0.0004/0.0005/' c.samples.jsonl >slower.samples.jsonl
sbplan calibrate --from slower.samples.jsonl --diff c.samples.jsonl --method paper | grep -e host -e load: -e hide.*-
for runtime in none sbplan; do
    for more in '' .overlap_efficiency=1 .host_launch_s=0 .host_launch_s=6e-3; do
        sbplan price gpt2-small c.json --tp 2 --set global_batch=64 --runtime $runtime \
            ${more:+--set cluster.device$more} | grep ^step
    done
done
