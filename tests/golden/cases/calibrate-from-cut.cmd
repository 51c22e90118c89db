sbplan calibrate --from $DATA/logs/cut.log
