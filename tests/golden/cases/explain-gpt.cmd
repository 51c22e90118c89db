sbplan search --runnable tiny-gpt laptop-4 --set clip_norm=1 -o plan.json >/dev/null && sbplan explain plan.json
