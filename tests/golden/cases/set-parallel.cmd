for set in pipline=2 pipeline=3 schedule=1f2b zero=4 micro_batch=3 offload=true recompute=ful gradient_overlap=2 schedule=cdp-v1 allow_delayed_gradients=1 owner=broadcst chunks=2 pipeline_limit=3 chunk_factor=2; do
sbplan search tiny-gpt laptop-4 --set $set && echo "$set: accepted"
done 2>&1; true
