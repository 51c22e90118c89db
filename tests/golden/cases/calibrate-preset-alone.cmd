sbplan calibrate --device-preset h100-sxm
