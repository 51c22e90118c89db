timeout --foreground --preserve-status -s TERM 1 sbplan solve $DATA/problem.json --algorithm random --max-evaluations 1T >out.txt
echo $?
grep -o "stopped early" out.txt
