sbplan price llama-3.1-8b dgx-h100-8x8 --zero 3 --cp 2 --set global_batch_tokens=4Mi --set micro_batch_per_replica=2 | sed -n "1,8p;/attention/p"
