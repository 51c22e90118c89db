for words in "laptop-4 tiny-mlp" "tiny-mlp gpt2-small"; do
    sbplan search $words 2>&1
done
cp "$SBPLAN_CONFIGS/models/tiny-mlp.json" "$SBPLAN_CONFIGS/clusters/laptop-4.json" .
sbplan search laptop-4.json tiny-mlp.json 2>&1
sbplan search tiny-mlp laptop-4 --runtime laptop-4 2>&1
sbplan search tiny-mlp laptop-4 --runtime ./laptop-4.json 2>&1
sbplan search tiny-mlp "$SBPLAN_CONFIGS/runtimes/$(ls "$SBPLAN_CONFIGS/runtimes" | head -n 1)"
