# No output is written over another one, nor over what the command reads, by links as well.
sbplan search tiny-mlp laptop-4 -o strategy.json >/dev/null
cp "$SBPLAN_CONFIGS/models/tiny-mlp.json" model.json
cp "$SBPLAN_CONFIGS/clusters/laptop-4.json" plan-2.json
ln model.json hard.json && ln -s model.json soft.json && ln -s plan.json plan-3.json
ls >before.txt && cat model.json plan-2.json strategy.json | cksum >before.sum
sbplan search model.json laptop-4 -o x.json --problem ./x.json
sbplan search model.json laptop-4 -o model.json
sbplan search model.json laptop-4 --problem hard.json
sbplan search tiny-mlp plan-2.json -o plan.json --top 2
sbplan search tiny-mlp laptop-4 -o plan.json --problem plan-2.json --top 2
sbplan search tiny-mlp laptop-4 -o plan.json --top 3
sbplan price soft.json laptop-4 --strategy strategy.json -o model.json
sbplan price model.json laptop-4 --strategy strategy.json -o strategy.json
sbplan import hf model.json -o soft.json --global-batch 1
sbplan calibrate --from model.json -o hard.json --device-preset a100-40g
cat model.json plan-2.json strategy.json | cksum | cmp - before.sum
rm before.sum; ls | diff before.txt - | grep -v before
sbplan search tiny-mlp laptop-4 -o /dev/null --problem /dev/null >/dev/null
