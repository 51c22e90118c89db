for precision in mixed bf16 fp16; do
    sbplan search tiny-gpt v100-roce-4x8 --devices 2 --set precision=$precision -o $precision.json |
        grep -E "^model|^step|^memory"
    sbplan explain $precision.json | grep "^model"
done
sbplan search tiny-gpt laptop-4 --set precision=bf32
