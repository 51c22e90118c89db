sbplan search --runnable tiny-gpt dgx-a100-8x8 --set pipeline=1 --sweep 'cluster.levels[0].size=1,2,4' \
    --set micro_batch=8 --set zero=0 --set recompute=none --quick
