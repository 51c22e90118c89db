for words in "tiny-gpt --target megatron-lm" "tiny-mlp --target megatron" "tiny-gpt --target megatron --top 3" \
    "tiny-gpt --target galvatron --fix block0.up=column:4" "tiny-gpt --target fsdp2 --space zero" "tiny-gpt --target dtensor --space full" "tiny-gpt --target dtensor --set pipeline=2" \
    "tiny-gpt --target fsdp2 --sweep zero=2,3" "tiny-gpt --target dtensor --tp 2 --pp 1" "tiny-gpt --target deepspeed --zero 2" "vgg-13 --target dtensor"; do
    set -- $words
    model=$1
    shift
    sbplan search $model laptop-4 "$@"
    echo "$words: $?"
done
