sbplan search tiny-gpt laptop-4 --set schedule=interleaved
