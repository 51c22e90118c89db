sbplan calibrate --nodes 2
