# The level that layers take is in `parallel`, as in the table of compare.
sbplan search tiny-gpt laptop-4 --space zero-1 | grep ^parallel
sbplan search tiny-gpt laptop-4 -o p.json | grep ^parallel
sbplan explain p.json | grep ^parallel
sbplan compare tiny-gpt laptop-4 | sed -n "s/^full .*\(ZeRO [0-9-]*\).*/\1/p"
