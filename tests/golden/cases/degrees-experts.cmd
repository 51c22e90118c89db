sbplan price mixtral-8x7b dgx-h100-8x8 --tp 8 --ep 8 --etp 1 --sequence-parallel --zero 1 | sed -n "3,7p;/moe/p"
sbplan price mixtral-8x7b dgx-h100-8x8 --tp 8 --ep 8 --etp 1 --sequence-parallel --zero 1 --micro-batch 8 | sed -n "3,6p;/moe/p"
