# A plan that was searched under another memory limit is held to that limit.
sbplan search tiny-gpt laptop-4 --memory-limit 1T -o plan.json >out.txt || exit
sbplan explain plan.json | grep -o "of 1.00 TiB a device"
