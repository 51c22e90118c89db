# A search without time for a look at anything says so: there may be a plan.
sbplan search gpt2-small laptop-4 --time-limit 1e-9
# What ended a search is what may help.
sbplan search tiny-mlp laptop-4 --max-evaluations 10 | grep stopped
# No plan was made of the least memory: nobody has seen it do.
sbplan search tiny-gpt laptop-4 --set sequence=100000000 >out.txt
status=$?
grep infeasible out.txt
exit $status
