# A row of a sweep is the search with its values.
costs() { grep -E '"(step_s|lower_bound_s|communication_bytes|micro_batch)":'; }
sbplan search tiny-gpt dgx-a100-8x8 --set pipeline=1 --set micro_batch=8 --set cluster.levels[1].size=4 --sweep cluster.levels[0].size=1,2 --sweep zero=1,3 --sweep layers=2,3 --json | costs | tr -d '\t' | sort >rows
for size in 1 2; do for zero in 1 3; do for layers in 2 3; do
sbplan search tiny-gpt dgx-a100-8x8 --set pipeline=1 --set micro_batch=8 --set cluster.levels[1].size=4 --set cluster.levels[0].size=$size --set zero=$zero --set layers=$layers --json | costs | tr -d '\t'
done; done; done | sort >searches
wc -l <rows | tr -d ' '
diff rows searches && echo same
