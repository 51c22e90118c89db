# Files of other kinds where a problem stands.
sbplan search tiny-mlp laptop-4 -o plan.json >plan.txt &&
sbplan solve plan.json 2>&1
sbplan solve "$SBPLAN_CONFIGS/models/gpt2-small.json" 2>&1
sbplan solve "$SBPLAN_CONFIGS/clusters/laptop-4.json" 2>&1
