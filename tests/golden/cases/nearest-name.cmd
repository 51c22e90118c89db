for name in llama-3-8b llama3-8b llama-70b gpt qwen3 Llama-3.1-8B mixtral tiny-mpl deepseek-r1 zebra; do
    sbplan search $name laptop-4 2>&1
done
sbplan search tiny-mlp dgx-h100 2>&1
sbplan search tiny-mlp h100-ib
