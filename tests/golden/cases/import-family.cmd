sed 's/llama/gemma/' "$DATA/hf-llama.json" > gemma.json && sbplan import hf gemma.json --global-batch 8 --sequence 64
