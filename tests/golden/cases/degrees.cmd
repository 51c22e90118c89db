sbplan price tiny-gpt laptop-4 --tp 2 --pp 2 --sequence-parallel --zero 1 --recompute attention
