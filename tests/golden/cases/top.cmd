sbplan search tiny-gpt laptop-4 --top 3 -o plan.json
ls
for plan in plan-2.json plan-3.json; do
grep -o '"rank":.*' $plan
sbplan explain $plan | grep '^step'
sbplan price tiny-gpt laptop-4 --strategy $plan | grep '^step'
done
sbplan search tiny-mlp laptop-4 --space data-parallel --set pipeline=1 --top 100 -o folder.v1/plan
mkdir folder.v1
sbplan search tiny-mlp laptop-4 --space data-parallel --set pipeline=1 --top 100 -o folder.v1/plan
ls folder.v1
