for words in "--num-layers 48" "--tensor-model-parallel-size 7" "--recompute-granularity some" \
    "--pipeline-model-parallel-layout m" "--decoder-first-pipeline-num-layers 2" "--global-batch-size 0"; do
    sbplan price gpt3-175b dgx-a100-8x8 --megatron "$words" && echo "$words: priced"
done
sbplan price gpt3-175b dgx-a100-8x8 --megatron "--bf16" --tp 2
