sbplan search tiny-gpt laptop-4 --space summa -o plan.json | tail -16
grep -c '"linears":	"summa"' plan.json
sbplan explain plan.json | head -8
sbplan price tiny-gpt laptop-4 --strategy plan.json --set linears=summa | grep -E '^(parallel|priced|step)'
