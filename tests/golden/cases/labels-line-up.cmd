sbplan search --quick --runnable tiny-mlp dgx-a100-8x8 --set pipeline=1
