# What needs more memory than the search has is left out, and the answer says so.
sbplan search gpt2-small laptop-4 --search-memory 3M | grep -o -E 'feasible|optimal|without what needs more than .* of search memory'
sbplan search gpt2-small laptop-4 --search-memory 3M --json | grep '"left_out"'
# Without memory for anything there is no answer, and no claim that nothing fits.
sbplan search gpt2-small laptop-4 --search-memory 1K >out.txt
echo $?
grep -E 'infeasible|neither' out.txt
sbplan search tiny-gpt laptop-4 --search-memory lots
