# A plan of degrees is a plan file like others.
sbplan price gpt2-medium dgx-a100-8x8 --tp 8 --pp 4 --set stage_cut=5,6,7,6 -o plan.json | grep -E "^(layout|step|  )" | head -3 &&
sbplan explain plan.json | grep -E "^(layout|step|made)" &&
sbplan price gpt2-medium dgx-a100-8x8 --strategy plan.json | grep -E "^(priced|layout|step)" &&
sed -n '/"stage_cut"/p' plan.json
