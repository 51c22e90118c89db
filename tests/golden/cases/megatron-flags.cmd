sbplan price gpt3-175b dgx-a100-8x8 --megatron "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 \
    --num-layers-per-virtual-pipeline-stage 4 --micro-batch-size 1 --global-batch-size 64 --num-layers 96 \
    --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --sequence-parallel \
    --recompute-granularity selective --use-distributed-optimizer --bf16 --use-flash-attn \
    --overlap-grad-reduce --lr 6e-5 --tokenizer-type GPT2BPETokenizer" | head -13
