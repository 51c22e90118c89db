for cluster in summit-v100 dgx-h100-8x8; do
    sbplan price gpt2-small $cluster --set global_batch=384 --dp $([ $cluster = summit-v100 ] && echo 384 || echo 64) -o plan.json >price.out
    sbplan export plan.json --to fsdp2 -o fsdp.yaml >export.out && grep num_ fsdp.yaml
done
