sbplan search tiny-mlp laptop-4 -o plan.json >/dev/null && sbplan price tiny-gpt laptop-4 --strategy plan.json
