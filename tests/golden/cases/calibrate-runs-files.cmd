# Messages name the file at fault, be it the table, the model, the cluster or the profile.
printf 'gpus,tp,step_s\n4,1,0.1\n4,2,0.1\n' >runs.csv
echo '[1]' >list.json
echo '{"levels": 3}' >levels.json
sbplan calibrate --runs runs.csv list.json dgx-a100-8x8
sbplan calibrate --runs runs.csv dgx-a100-8x8 dgx-a100-8x8
sbplan calibrate --runs runs.csv gpt2-small list.json
sbplan calibrate --runs runs.csv gpt2-small levels.json
sbplan calibrate --runs runs.csv gpt2-small gpt2-small
sbplan calibrate --runs runs.csv gpt2-small summit-v100
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8 --runtime levels.json
sbplan calibrate --runs . gpt2-small dgx-a100-8x8
sbplan calibrate --runs runs.csv gpt2-small dgx-a100-8x8 -o runs.csv
sbplan calibrate --runs runs.csv gpt2-small flat-64
