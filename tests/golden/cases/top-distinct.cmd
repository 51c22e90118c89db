# forty plans, no two of them the same in other words: as long, with as much communication and memory
sbplan search tiny-mlp laptop-4 --top 40 --json | awk '
    $1 == "\"rank\":" { plans++; delete seen }
    plans && /"(step_s|communication_s|device_bytes)":/ && !seen[$1]++ { plan[plans] = plan[plans] " " $2 }
    END { for (i = 1; i <= plans; i++) print plan[i] }' >plans.txt
wc -l <plans.txt
awk 'NF == 3' plans.txt | wc -l
sort plans.txt | uniq -d
