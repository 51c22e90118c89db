cd "$DATA/samples" && sbplan calibrate --from newer.json --diff absent.json
