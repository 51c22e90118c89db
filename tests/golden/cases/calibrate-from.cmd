sbplan calibrate --from log.txt
