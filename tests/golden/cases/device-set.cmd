# A device's rates for a shipped cluster by --set: what the cluster says itself stays, the rest is the
# device's, and further keys change it. A table of its own keeps out the device's.
own='[{"m":1,"n":1,"k":1,"efficiency":0.5}]'
for more in '' 'cluster.device.sustained=0.5' 'cluster.device.stream_efficiency=0.5' "cluster.device.gemm=$own"; do
sbplan search gpt2-xl dgx-h100-8x8 --devices 8 --set cluster.device.like=h100-sxm ${more:+--set "$more"} -o plan.json | grep '^step'
grep -o -E '"(gemm|gemm_grids|like|reserve_bytes)":' plan.json
done
