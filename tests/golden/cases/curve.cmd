# the best so far of a heuristic, down to the plan's
for solver in random metropolis-hastings; do
sbplan search tiny-gpt laptop-4 --runnable --algorithm $solver --max-evaluations 2000 --json | grep -E '"(best_s|objective_s)":'
done
