sbplan search tiny-mlp laptop-4 -o p.json >plan.txt || exit
sbplan search p.json laptop-4 2>&1
sbplan search tiny-mlp p.json 2>&1
cp "$DATA/strategy.json" "$DATA/problem.json" .
sbplan explain strategy.json 2>&1
sbplan search problem.json laptop-4
