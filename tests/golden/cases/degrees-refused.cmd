for words in "--tp 3" "--tp 16" "--pp 3" "--pp 2 --vpp 5" "--vpp 2" \
    "--pp 2 --vpp 2 --set schedule=gpipe" "--pp 2 --vpp 3 --set schedule=cdp-v2" "--dp 2" "--micro-batch 3" "--ep 2" \
    "--tp 2 --etp 4" "--tp 2 --set micro_batch=4" "--pp 2 --set micro_batch=4" "--pp 2 --set pipeline=2" "--tp 2 --strategy x.json" \
    "--pp 4 --set stage_cut=1,1" "--pp 2 --set stage_cut=1,2" "--pp 2 --set stage_cut=2" \
    "--set micro_batch_per_replica=2" "--tp 2 --set global_batch_tokens=100" "--recompute some" "--zero 4"; do
    sbplan price tiny-gpt laptop-4 $words && echo "$words: priced"
done
# A schedule that is given stays.
sbplan price tiny-gpt laptop-4 --tp 2 --pp 1 --vpp 2 --set schedule=cdp-v2 --set allow_delayed_gradients=true | sed -n '/^parallel/p; /^layout/p'
true
