sbplan advise tiny-gpt laptop-4 --set devices=2
sbplan advise tiny-gpt
sbplan advise laptop-4 tiny-gpt
sbplan advise tiny-gpt laptop-4 --devices 2
sbplan advise tiny-gpt laptop-4 --memory-limit 1G
