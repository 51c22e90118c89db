# Words that are nearly right: what is told names the word, and what is legal.
sbplan search -h | head -1
for set in cluster..x=1 'cluster.levels[0]size=2' 'cluster.levels[0].size.=2' 'precision={"param":"bf16"' '.layers=2'; do
    sbplan search tiny-mlp laptop-4 --set "$set"
done
sbplan search tiny-mlp laptop-4 --sweep boxing=full,paper
sbplan search tiny-mlp laptop-4 --sweep 'precision={"param":"bf16"},{"param"}'
sbplan search tiny-gpt laptop-4 --fix nothing=batch:4
sbplan search gpt3-175b dgx-a100-8x8 --fix nothing=batch:4
true
