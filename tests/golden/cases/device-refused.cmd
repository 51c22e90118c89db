# Devices that there are not, or that say what is wrong.
like() { sbplan search gpt2-xl dgx-h100-8x8 --set "cluster.device.like=$1"; echo $?; }
like h100-sxn
like none.json
like '[1]'
sed 's/"bf16": 0.86/"bf16": 2/' "$SBPLAN_CONFIGS/devices/h100-sxm.json" >hot.json
like hot.json
sed 's/16, 32, 128,/16, 32, 32,/' "$SBPLAN_CONFIGS/devices/h200-sxm.json" >flat.json
like ./flat.json
sbplan search gpt2-xl dgx-h100-8x8 --set cluster.device.gemm_grids=0.5
