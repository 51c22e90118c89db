# Ctrl-C: the best plan so far is written and marked. A slow machine gets more time to find one.
for seconds in 1 8 64; do
    timeout --foreground --preserve-status -s INT $seconds sbplan search --runnable gpt2-small laptop-4 --set sequence=256 --algorithm random --seed 1 --max-evaluations 1T -o plan.json >out.txt 2>err.txt && break
done
cat err.txt
grep -o "stopped early" out.txt
grep "stopped" plan.json
sbplan explain plan.json | grep status
