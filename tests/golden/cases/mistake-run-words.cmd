# Words of launchers and of other tools.
sbplan run plan.json -n 4 2>&1
sbplan run plan.json --np 4 2>&1
sbplan bench plan.json --ranks 4 2>&1
sbplan run plan.json --device gpu 2>&1
sbplan calibrate --backend gpu 2>&1
sbplan run plan.json --backend gloo 2>&1
sbplan import hf config.json --precision bfloat16 2>&1
