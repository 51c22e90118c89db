run() { sbplan price tiny-gpt laptop-4 --strategy p.json "$@" | sed -n "/MFU/,/^memory/p"; }
sbplan search tiny-gpt laptop-4 --quick -o p.json >search.txt
run --set sequence=4096 --set attention=flash --set cluster.device.memory_bytes_per_s=1T
