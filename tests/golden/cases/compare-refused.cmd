sbplan compare gpt2-medium gcp-a100-2x16 --set pipeline=1 --set micro_batch=8 --set recompute=none --set offload=false
