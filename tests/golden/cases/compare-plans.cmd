sbplan search tiny-gpt laptop-4 --runnable -o p.json >p.txt &&
sbplan search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=4 -o q.json >q.txt &&
sbplan compare p.json q.json &&
sbplan compare p.json p.json | tail -n 1 &&
sbplan compare --json p.json q.json | grep -c '"step_s"' || exit
sbplan compare p.json q.json --set layers=4 2>&1
sbplan compare p.json laptop-4
