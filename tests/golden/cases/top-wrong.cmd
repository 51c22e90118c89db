for top in 0 x 101 -1 1.5 ''; do sbplan search tiny-gpt laptop-4 --top "$top"; done
for solver in random coordinate-descent metropolis-hastings; do
sbplan search tiny-gpt laptop-4 --top 2 --algorithm $solver
done
sbplan search tiny-gpt laptop-4 --top 2 --sweep layers=1,2
sbplan search tiny-gpt laptop-4 --top 2 -o /dev/null
sbplan price tiny-gpt laptop-4 --top 2 --strategy plan.json
sbplan compare tiny-gpt laptop-4 --top 2
true
