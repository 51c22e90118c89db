sbplan search --runnable tiny-gpt laptop-4 --fix block0.attention=context:4 -o plan.json >/dev/null &&
sbplan run plan.json
