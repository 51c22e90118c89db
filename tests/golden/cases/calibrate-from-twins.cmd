sed s/IB/Socket/ $DATA/logs/job.log >socket.log
sbplan calibrate --from socket.log $DATA/logs/job.log
