# A copy of a shipped cluster with each device: it loads, is searched and checked, and its plan holds
# all of the device, so that it is priced again without the file.
for device in a100-sxm-80gb h100-sxm h200-sxm b200-sxm gb200 l40s; do
echo "== $device"
sed "/\"device\": {/,/^  },/c\\  \"device\": {\"like\": \"$device\"}," "$SBPLAN_CONFIGS/clusters/dgx-a100-8x8.json" >mine.json
sbplan search gpt2-xl mine.json --devices 8 -o plan.json --json >found.json
SBPLAN_CONFIGS=none sbplan explain plan.json | grep -A1 '^step'
grep -o -E '"(gemm_grids|like)":' plan.json
done
