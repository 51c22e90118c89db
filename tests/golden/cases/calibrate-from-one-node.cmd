sed s/node01/node00/g $DATA/logs/all_gather.log | awk '/Rank/ { sub("device  [0-3]", "device  " n++) } { print }' >one.log
sbplan calibrate --from one.log --nodes 2
