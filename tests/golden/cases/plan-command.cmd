# The command that a plan records can be given to a shell again; where it wrote is not part of it.
sbplan search tiny-mlp laptop-4 --set 'cluster.levels[0].size=2' --set "name=it's" --problem p.json -o 'a plan.json' >out.txt
grep '"command"' 'a plan.json'
