# norms and their repeats keep their own ZeRO levels, in whatever order they stand
price() {
    batch='"roles": {"batch": 4}'
    echo "{\"layers\": [$1" >mine.json
    for layer in embedding block0.qkv block0.attention block0.projection block0.add1 block0.up block0.down block0.add2 head; do
        echo ", {\"name\": \"$layer\", $batch}"
    done >>mine.json
    echo ']}' >>mine.json
    sbplan price tiny-gpt laptop-4 --strategy mine.json | grep -E '^(step|memory)'
}
first='{"name": "block0.norm1", "zero": 1}'
second='{"name": "block1.norm1", "zero": 0}'
price "$first, $second"
price "$second, $first"
