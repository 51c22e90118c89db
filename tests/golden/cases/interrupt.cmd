# Ctrl-C: the best plan so far is written and marked.
timeout --foreground --preserve-status -s INT 1 sbplan search --runnable gpt2-small laptop-4 --set sequence=256 --algorithm random --max-evaluations 1T -o plan.json >out.txt || exit
grep -o "stopped early" out.txt
grep "stopped" plan.json
sbplan explain plan.json | grep status
