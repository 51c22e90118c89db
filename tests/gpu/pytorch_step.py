"""Times training steps of GPT-2 in PyTorch, compiled and eager: bf16 autocast, fp32 weights.

usage: pytorch_step.py [STEPS]

Flash attention, fused AdamW, batch 16, sequence 1024, on one GPU. Prints a line of JSON a model;
results/gpu.md holds what it gave.
"""
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

BATCH, SEQUENCE, TOKENS, VOCAB = 16, 1024, 50257, 50304
MODELS = {"gpt2-small": (12, 768, 12), "gpt2-medium": (24, 1024, 16)}  # layers, hidden, heads
WARM_UP = 5


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(0.1)

    def attend(self, x):
        batch, sequence, hidden = x.shape
        heads = self.qkv(x).view(batch, sequence, 3, self.heads, hidden // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, sequence, hidden))

    def forward(self, x):
        x = x + self.dropout(self.attend(self.norm1(x)))
        wide = functional.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.down(wide))


class Gpt2(nn.Module):
    def __init__(self, layers, hidden, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, hidden), nn.Embedding(SEQUENCE, hidden)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, wanted):
        x = self.dropout(self.tokens(ids) + self.positions.weight)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).view(-1, VOCAB), wanted.view(-1))


def time_steps(shape, compiled, steps):
    torch.manual_seed(0)
    model = Gpt2(*shape).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, TOKENS, (BATCH, SEQUENCE), device="cuda")
    wanted = ids.roll(-1, 1)
    run = torch.compile(model) if compiled else model
    times = []
    for _ in range(WARM_UP + steps):
        start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = run(ids, wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times[WARM_UP:]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    torch.set_float32_matmul_precision("high")
    for compiled in (True, False):
        for name, shape in MODELS.items():
            torch.cuda.reset_peak_memory_stats()
            times = time_steps(shape, compiled, steps)
            print(json.dumps({"model": name, "compiled": compiled,
                              "median_s": statistics.median(times), "least_s": min(times),
                              "most_s": max(times),
                              "peak_bytes": torch.cuda.max_memory_allocated()}), flush=True)


main()
