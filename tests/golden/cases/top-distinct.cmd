# forty plans, no two of them the same in other words: as long, with as much communication and memory
sbplan search tiny-mlp laptop-4 --top 40 | grep -E '^ *[0-9]+ ' >plans.txt
wc -l <plans.txt
awk '{print $2, $3, $6, $7}' plans.txt | sort | uniq -d
