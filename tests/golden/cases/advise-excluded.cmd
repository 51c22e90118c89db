sbplan advise tiny-gpt laptop-4 --set pipeline=4 --set micro_batch=4 --set global_batch_tokens=128 --time-limit none
