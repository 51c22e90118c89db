# A plan of a part of full is full's, where its own search finds none better.
sbplan compare tiny-gpt laptop-4 --algorithm random --max-evaluations 20 --set pipeline=1 --set recompute=none --set micro_batch=8 >out.txt
grep -E '^(zero-1|full)' out.txt
sbplan compare tiny-gpt laptop-4 --algorithm random --max-evaluations 20 --set pipeline=1 --set recompute=none --set micro_batch=8 --json | grep plan_of
