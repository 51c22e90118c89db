for target in deepspeed fsdp2 dtensor; do
    sbplan search tiny-gpt laptop-4 --target $target -o plan.json | grep -e ^layout -e ^step
    sbplan export plan.json --to $target -o file | sed -n "/^lost/,/^step/p"
done
