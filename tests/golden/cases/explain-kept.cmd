# Flops, parameters and kept activations by formula: batch b 1024, sequence s 1024, hidden h 8192, 64
# heads, 64 devices. qkv: 2 b s h 3h flops forward, twice that back, 3 h^2 parameters, keeps its input
# gathered to b/4 x s x h/2 fp32 = 4 GiB. Attention keeps q, k, v (1.5 GiB), its output (0.5 GiB) and
# 64 b s^2 probabilities over 64 devices (4 GiB). Projection keeps b/4 x s x h/4 = 2 GiB.
sbplan search autoddl-attention flat-64 --space autoddl --objective communication \
    --memory-limit 1T --set max_batch_split=4 -o best.json >out.txt &&
sbplan explain best.json | grep FLOP
