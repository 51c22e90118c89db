sbplan calibrate --help
