sbplan price tiny-gpt laptop-4 --runtime sbplan --pp 2 --dp 2 --micro-batch 1 --set layers=4 --set global_batch=16 | grep ^memory
sbplan price tiny-gpt laptop-4 --runtime none --pp 2 --dp 2 --micro-batch 1 --set layers=4 --set global_batch=16 | grep ^memory
sbplan search tiny-gpt laptop-4 --runtime none --set layers=4 --set global_batch=16 --set pipeline=2 --memory-limit 1070000 | grep ^memory
sbplan search tiny-gpt laptop-4 --runtime sbplan --set layers=4 --set global_batch=16 --set pipeline=2 --memory-limit 1080320 | grep ^memory
