sbplan price qwen3-30b-a3b dgx-h100-8x8 --ep 16 --zero 1 | sed -n "/^step/p;/^layer/p;/moe/p"
sbplan price qwen3-30b-a3b dgx-h100-8x8 --ep 16 --zero 1 --set nodes_per_token=1 | sed -n "/^step/p;/moe/p"
sbplan price qwen3-30b-a3b dgx-h100-8x8 --ep 16 --zero 1 --runtime none | sed -n "/^step/p;/moe/p"
sbplan price qwen3-30b-a3b dgx-h100-8x8 --ep 16 --zero 1 --runtime none --set nodes_per_token=1 | sed -n "/^step/p;/moe/p"
sbplan price qwen3-30b-a3b flat-64 --ep 16 --zero 1 --set nodes_per_token=2 | sed -n "/^step/p;/moe/p"
sbplan price qwen3-30b-a3b dgx-h100-8x8 --ep 16 --set nodes_per_token=9
