# A table of measured runs fits a trainer; what stands in its way is named.
printf 'gpus,tp,micro_batch,precision,step_s\n8,1,1,mixed,0.02\n8,2,2,mixed,0.03\n' >runs.csv
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8 -o mine.json
sbplan price gpt2-small dgx-a100-8x8 --tp 1 --runtime mine.json | grep -E '^interval'
sbplan calibrate --runs runs.csv gpt2-small
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8 --fresh
sbplan calibrate --runs none.csv gpt2-small dgx-a100-8x8
sbplan calibrate --runtime fsdp
printf 'tp,step_s\n3,1\n3,2\n' >runs.csv
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8
printf 'tp,step_s\n3\n' >runs.csv
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8
printf 'tp,step_s\nx,1\n' >runs.csv
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8
printf 'tp,hidden,step_s\n1,wide,1\n1,,slow\n' >runs.csv
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8
{
    echo gpus,tp,hidden,precision,step_s
    printf '8,%s,768,mixed,0.02\n' 1 2 3
    for wrong in wide 1 2 3 4 5 6 7 9 10 11; do echo 8,1,$wrong,mixed,0.03; done
} >runs.csv
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8
for value in 3k 1.5 10x ''; do
    sbplan calibrate --runs "$value" --dry-run
done
for value in 3.csv 7_runs ./3k; do
    sbplan calibrate --runs "$value" gpt2-small dgx-a100-8x8
done
sbplan calibrate --runs runs.csv --runs 3 gpt2-small dgx-a100-8x8
