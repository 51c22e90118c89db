# Search asks what `run` asks: operators without kernels, cuts of a step that are not run.
sbplan search --runnable tiny-gpt laptop-4 --space summa
sbplan search --runnable vgg-13 laptop-4
sbplan search --runnable tiny-gpt laptop-4 --set zero=1
sbplan search --runnable tiny-gpt laptop-4 --set micro_batch=2
