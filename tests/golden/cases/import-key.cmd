grep -v num_local_experts "$DATA/hf-mixtral.json" > m.json && sbplan import hf m.json --global-batch 8 --sequence 64
