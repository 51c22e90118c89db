run() {
    sbplan search tiny-gpt laptop-4 --quick --set sequence=4096 --set attention=flash \
        --set cluster.device.memory_bytes_per_s=1T "$@" | sed -n "/MFU/,/^memory/p" | grep -v ^memory
}
run
run --set cluster.device.gemm='[{"m": 4096, "n": 4096, "k": 4096, "efficiency": 0.5}]'
