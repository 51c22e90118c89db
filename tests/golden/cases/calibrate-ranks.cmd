sbplan calibrate -n 0
