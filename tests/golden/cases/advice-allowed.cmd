advice() {
    sbplan search tiny-gpt dgx-a100-8x8 --devices 4 --memory-limit 1k "$@" | grep "^may help"
}
advice
advice --space data-parallel
advice --space zero-1
advice --runnable
advice --fix block0.qkv=column:1/4
advice --space data-parallel --set offload=true
advice --space data-parallel --set owner=broadcast
