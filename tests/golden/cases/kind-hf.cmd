cp "$DATA/hf-llama.json" config.json
sbplan search config.json laptop-4 2>&1
sbplan price config.json laptop-4 --strategy config.json 2>&1
grep -v model_type "$DATA/hf-gemma2.json" >config.json && sbplan compare config.json laptop-4
