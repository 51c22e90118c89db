for i in 1 2; do sbplan search tiny-gpt laptop-4 --algorithm metropolis-hastings --restarts 3 --seed 5 -o plan$i.json >/dev/null || exit; done
cmp plan1.json plan2.json
