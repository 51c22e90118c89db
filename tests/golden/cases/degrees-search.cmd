sbplan search llama-3.1-8b dgx-h100-8x8 --tp 4 --pp 2 --set global_batch=256 | sed -n "3,4p;6,8p"
sbplan search llama-3.1-8b dgx-h100-8x8 --pp 2 --zero 1 --recompute none --quick --set global_batch=256 | sed -n "3p;6,7p"
sbplan search tiny-gpt laptop-4 --set stage_cut=0,2 | grep -E "^(parallel|layout|   )" | sed -n "1p;3,4p"
sbplan search tiny-gpt laptop-4 --tp 2 || sbplan search tiny-gpt laptop-4 --pp 2 --micro-batch 1 || sbplan search tiny-gpt laptop-4 --pp 1 --tp 2 --space zero
