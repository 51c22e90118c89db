sbplan calibrate --from=$DATA/logs/run.json --json
