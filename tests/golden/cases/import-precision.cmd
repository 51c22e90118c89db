for precision in auto mixed bf16 fp16 fp32; do
    sbplan import hf "$DATA/hf-llama.json" --global-batch 8 --sequence 64 --precision $precision 2>&1 |
        grep -E '"precision"|^sbplan'
done
sbplan import hf "$DATA/hf-llama.json" --global-batch 8 --sequence 64 --precision fp8
