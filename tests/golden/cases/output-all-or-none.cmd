# Where a disk fills up, played by a limit on file sizes, none of the plans of --top is written.
sbplan search tiny-gpt laptop-4 --top 3 -o plan.json >/dev/null || exit
first=$(wc -c <plan.json) third=$(wc -c <plan-3.json) blocks=$(($(wc -c <plan.json) / 512 + 1))
[ "$first" -le $((blocks * 512)) ] && [ "$third" -gt $((blocks * 512)) ] && echo "the third is too large"
rm plan-3.json && echo old >plan.json && echo old >plan-2.json
trap '' XFSZ
(ulimit -f $blocks && sbplan search tiny-gpt laptop-4 --top 3 -o plan.json >/dev/null)
cat plan.json plan-2.json && ls
