# A key that a model need not have, on a cluster whose trainer has one of that name.
sbplan search gpt2-small dgx-a100-8x8 --devices 2 --set attention=flash | grep '^step'
