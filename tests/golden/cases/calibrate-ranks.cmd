sbplan calibrate -n 1
