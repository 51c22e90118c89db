cp "$DATA"/logs/* "$DATA/samples/newer.samples.jsonl" .
for file in *; do
    sbplan search tiny-mlp ./$file 2>&1
done
