sbplan search tiny-gpt laptop-4 --algorithm random --max-evaluations 100 --seed 3 --json | grep -E "\"(status|stopped|evaluations|seed)\"" | head -4 | tr -d '"'
