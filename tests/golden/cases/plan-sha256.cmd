# The bytes of plans, the same under every compiler, level of optimisation and mathematics library:
# prices by formula, by measured curves and efficiencies, and an algorithm that draws and accepts.
cp "$DATA/measured.json" .
plan() { sbplan search "$@" -o plan.json >/dev/null && echo "$(sha256sum <plan.json | cut -c1-64) $1 $2"; }
plan tiny-mlp laptop-4
plan tiny-gpt measured.json --set zero=1
plan vgg-13 measured.json --set global_batch=48 --set boxing=path --seed 3
plan tiny-gpt measured.json --algorithm metropolis-hastings --restarts 3 --seed 7
plan tiny-gpt measured.json --set pipeline=2 --set micro_batch=4 --set precision=mixed --set recompute=full
