sbplan search tiny-gpt dgx-a100-8x8 --devices 16 --fix head=column:4
