sbplan search --runnable tiny-gpt laptop-4 -o plan.json | grep step &&
sbplan price tiny-gpt laptop-4 --strategy plan.json | grep step &&
sbplan search --runnable tiny-gpt laptop-4 --json >search.json &&
sbplan price tiny-gpt laptop-4 --strategy search.json | grep step
