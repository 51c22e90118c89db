# After Ctrl-C rows that were not searched say so, and none claims that nothing fits. A slow machine gets more time.
sbplan compare llama-3.1-405b dgx-h100-8x8 --time-limit none >out.txt &
sleep 1
kill -INT $!
wait $!
grep -c 'not searched  ' out.txt | sed 's/[0-9][0-9]*/some/'
grep -E '^full' out.txt | tr -s ' '
grep 'may help' out.txt
# Time that is up is the same.
sbplan compare gpt2-small laptop-4 --time-limit 1e-9 --json | grep -c '"not searched"'
