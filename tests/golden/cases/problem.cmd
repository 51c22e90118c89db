# A search written as a pairwise problem costs the same when it is solved by itself.
sbplan search autoddl-mlp flat-128 --space autoddl --objective communication --problem p.json \
    >out.txt && sbplan solve p.json --json | grep '"cost"'
sbplan search autoddl-mlp flat-128 --space megatron --problem m.json
echo $?
ls m.json 2>/dev/null
true
