# A link that leads nowhere, a name that is too long, a folder that is missing or is none: told
# before anything is read.
long=$(printf '%0256d' 0)
ln -s nothing.json link.json; : >file
for output in link.json "$long" nowhere/x.json file/x.json ./; do
    sbplan search nothing laptop-4 -o "$output"
    sbplan search nothing laptop-4 --problem "$output"
    sbplan price nothing laptop-4 --strategy nothing -o "$output"
    sbplan import hf nothing.json --global-batch 1 -o "$output"
    sbplan calibrate -o "$output"
    sbplan calibrate --from nothing -o "$output" --device-preset a100-40g
done 2>&1 | sed "s/$long/LONG/" | uniq -c | sed 's/^ *//'
sbplan search nothing laptop-4 --top 2 -o "$(printf '%0250d.json' 0)" 2>&1 | sed 's/00*/LONG/'
sbplan search tiny-mlp laptop-4 -o "$(printf '%0250d.json' 0)" >out.txt && ls | sed 's/00*/LONG/'
