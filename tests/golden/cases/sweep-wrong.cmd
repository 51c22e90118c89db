for sweep in layers zero= =1 zero=0,,1 zero=0,0 zero=0,4 pipeline=1,3 micro_batch=1,5 'cluster.levels[0].size=2,0' 'cluster.levels[0].siz=2,4' lyers=2,3 model.layers=2,two seed=1,2; do
sbplan search tiny-gpt laptop-4 --sweep "$sweep" && echo "$sweep: accepted"
done 2>&1
sbplan search tiny-gpt laptop-4 --sweep zero=0,1 --sweep zero=1,2
sbplan search tiny-gpt laptop-4 --sweep zero=0,1 --sweep pipeline=1,2 --sweep devices=2,4 --sweep layers=1,2 --sweep heads=2,4
sbplan search tiny-gpt laptop-4 --sweep layers=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 --sweep global_batch=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17
sbplan search tiny-gpt laptop-4 --sweep zero=0,1 -o plan.json
sbplan search tiny-gpt laptop-4 --sweep devices=2,4 --fix block0.up=column:3
true
