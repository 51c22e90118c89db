grep -v '"end"' $DATA/samples/newer.samples.jsonl >c.samples.jsonl
echo '{"run":0,"gemm":"fp64","m":64,"n":64,"k":64,"s":[0.000202]}' >>c.samples.jsonl
echo '{"run":0,"copy":1048576,"s":[0.0001]}' >>c.samples.jsonl
echo '{"run":0,"stream":524288,"s":[0.0001]}' >>c.samples.jsonl
for size in 64 128; do
    for sequence in 16 64; do
        for pass in forward input_gradient; do
            echo '{"run":0,"attention":"fp32","head_size":'$size',"sequence":'$sequence',"heads":2,"batch":'$((512 / sequence))',"pass":"'$pass'","s":['$sequence'e-5]}'
        done
    done
done >>c.samples.jsonl
sbplan calibrate --from c.samples.jsonl --method paper -o c.json | grep -e ^device -e attention
sed -n '/stream_eff/p; /attention_grids/,/gemm/p' c.json
sbplan price gpt2-small c.json --tp 1 --set attention=flash | head -n 2
sed 's/e-5]}/e-6]}/' c.samples.jsonl >faster.samples.jsonl
sbplan calibrate --from faster.samples.jsonl --diff c.samples.jsonl --method paper | grep -e attention: -e sum
sed 's/"device":""//; s/"cpu"/"device":"GPU","cpu"/; /"attention"/d' c.samples.jsonl >gpu.samples.jsonl
sbplan calibrate --from gpu.samples.jsonl --method paper -o gpu.json | grep attention
grep -c -e attention_grids gpu.json
grep attention gpu.json
