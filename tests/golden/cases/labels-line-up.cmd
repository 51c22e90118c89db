sbplan search --runnable tiny-mlp dgx-a100-8x8
