sbplan compare tiny-gpt laptop-4 --set micro_batch=2 --set zero=1
