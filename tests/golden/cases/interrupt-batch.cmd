# What batch systems send stops like Ctrl-C: the best plan so far is written, and nothing else stays. A slow machine
# gets more time to find one.
for signal in TERM HUP; do
    for seconds in 1 8 64; do
        timeout --foreground --preserve-status -s $signal $seconds sbplan search --runnable gpt2-small laptop-4 --set sequence=256 --algorithm random --seed 1 --max-evaluations 1T -o $signal.json >out.txt 2>err.txt && break
    done
    cat err.txt
    grep -o "stopped early" out.txt
    grep "stopped" $signal.json
done
rm out.txt err.txt
ls
