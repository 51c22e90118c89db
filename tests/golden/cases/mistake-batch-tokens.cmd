# Tokens that were meant as sequences: an answer without a plan says the tokens of a step, too.
sbplan search tiny-gpt laptop-4 --set global_batch=64k --memory-limit 1k
