for precision in bf16 fp16 fp32; do
    sbplan search tiny-gpt v100-roce-4x8 --devices 2 --set precision=$precision | head -n 3
done
sbplan search tiny-gpt laptop-4 --set precision=mixed --quick -o p.json | head -n 3
sbplan explain p.json | sed -n "3,5p"
