sbplan search tiny-mlp dgx-a100-8x8
