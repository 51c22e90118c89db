# A plan keeps its boxing, unless --set gives another.
for boxing in path paper; do
space=full
[ $boxing = path ] || space=autoddl
sbplan search tiny-gpt laptop-4 --runnable --space $space --set boxing=$boxing --json -o plan.json >searched.json
sbplan price tiny-gpt laptop-4 --strategy plan.json --json >priced.json
for file in searched.json priced.json; do grep '"step_s":' $file | head -1 >$file.cost; done
cmp searched.json.cost priced.json.cost && echo same
sbplan price tiny-gpt laptop-4 --strategy plan.json --set boxing=full | grep -o 'full boxing'
done
