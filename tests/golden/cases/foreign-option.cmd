for word in --tp=4 --dp --nodes --fsdp --dtype --batch-size --space=fsdp --space=ddp; do
    sbplan search tiny-gpt laptop-4 $word 2>&1
done
sbplan fsdp 2>&1
sbplan tp 2>&1
sbplan list --tp 4
