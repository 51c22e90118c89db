# Names of models and clusters where plans and problems stand.
sbplan explain gpt2-small 2>&1
sbplan run laptop-4 2>&1
sbplan bench gpt2-small 2>&1
sbplan export gpt2-small --to megatron -o args 2>&1
sbplan solve gpt2-small 2>&1
