#!/usr/bin/env python3
"""Trains by a file of `sbplan export --to dtensor`, on CPU ranks over gloo, and prints the loss of
each step: the same as `sbplan run` on the plan, to round-off in fp32.

Usage: dtensor_step.py FILE [STEPS [SEED]]

Every layer computes on local blocks. Between the placements in which a layer leaves its output,
in which it rests, and in which others read it, DTensor redistributes it, and its gradient back.
Needs PyTorch alone. Weights, token ids and labels are drawn as `sbplan run` draws them.
"""

import json
import math
import os
import signal
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

KINDS = {"Replicate()": Replicate(), "Partial()": Partial()}
STREAM_INPUT, STREAM_IDS, STREAM_LABELS = 1, 3, 4  # of a step's data


def placements_of(words):
    return [KINDS.get(word) or Shard(int(word[6:-1])) for word in words]


# ---- numbers that are drawn by their index (base/math/random.h) ---------------------------------


def signed(bits):
    return bits - (1 << 64) if bits >> 63 else bits


def shifted(z, by):
    return (z >> by) & ((1 << (64 - by)) - 1)


def mix(z):
    z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shifted(z, 31)


def bits_at(seed, stream, index):
    """64 bits each of a tensor of indices; arithmetic modulo 2^64."""
    golden = signed(0x9E3779B97F4A7C15)
    of = torch.tensor
    key = mix(mix(of(signed(seed)) + golden) + of(signed(stream)) * signed(0xD1B54A32D192ED03))
    return mix(mix(key + index * golden) ^ key)


def normal_at(seed, stream, count):
    bits = bits_at(seed, stream, torch.arange(count))
    uniform = (shifted(bits, 33).double() + 0.5) * 2.0**-31
    low = bits & 0xFFFFFFFF
    turn = torch.where(low >= 1 << 31, low - (1 << 32), low).double() * 2.0**-31
    return (torch.sqrt(-2 * torch.log(uniform)) * torch.sin(turn * math.pi / 2)).float()


def draw_below(seed, stream, count, bound):
    bits = bits_at(seed, stream, torch.arange(count)).tolist()
    return torch.tensor([value % (1 << 64) % bound for value in bits])


# ---- placements ---------------------------------------------------------------------------------


def redistribute(block, mesh, source, target):
    if source == target:
        return block
    between = [
        Replicate() if s.is_shard() and t.is_partial() else t for s, t in zip(source, target)
    ]
    tensor = DTensor.from_local(block.contiguous(), mesh, source, run_check=False)
    return tensor.redistribute(mesh, between).redistribute(mesh, target).to_local()


class Boxing(torch.autograd.Function):
    """From a placement to another one; the gradient comes back between two of its own."""

    @staticmethod
    def forward(ctx, block, mesh, source, target, gradient_source, gradient_target):
        ctx.mesh, ctx.back = mesh, (gradient_target, gradient_source)
        return redistribute(block, mesh, source, target)

    @staticmethod
    def backward(ctx, gradient):
        return redistribute(gradient, ctx.mesh, *ctx.back), None, None, None, None, None


def at_rest(placements):
    """Between layers the gradient of a sum, and of a whole tensor, is whole."""
    return [p if p.is_shard() else Replicate() for p in placements]


class Step:
    """What layers share: the mesh, the local parameters, the activations where they rest."""

    def __init__(self, plan, mesh, parameters):
        self.plan, self.mesh, self.parameters = plan, mesh, parameters
        self.rests = {}

    def coordinate(self, axis):
        return self.mesh.get_local_rank(axis)

    def offset(self, size, placements, dim):
        """Where the local block of a dimension begins."""
        first = 0
        for axis, placement in enumerate(placements):
            if placement.is_shard(dim):
                size //= self.mesh.size(axis)
                first += self.coordinate(axis) * size
        return first

    def leads(self, placements):
        """Whether this rank adds what is added to partial sums once."""
        return all(
            self.coordinate(axis) == 0 for axis, p in enumerate(placements) if p.is_partial()
        )

    def summed(self, block, axes, whole):
        """Sums over axes. whole: every rank's use of the sum leaves its whole gradient."""
        among = [Partial() if axis in axes else Replicate() for axis in range(self.mesh.ndim)]
        all_of = [Replicate()] * self.mesh.ndim
        return Boxing.apply(block, self.mesh, among, all_of, all_of, all_of if whole else among)

    def parameter(self, layer, place):
        name = layer["parameters"][place]
        lies = placements_of(self.plan["parameters"][name]["placements"])
        gradient = placements_of(layer["parameter_gradients"][place])
        return Boxing.apply(self.parameters[name], self.mesh, lies, lies, at_rest(lies), gradient)

    def input(self, layer, place):
        block, rests = self.rests[layer["inputs"][place]]
        lies = placements_of(layer["input_placements"][place])
        gradient = placements_of(layer["input_gradients"][place])
        return Boxing.apply(block, self.mesh, rests, lies, at_rest(rests), gradient)

    def leave(self, layer, block):
        lies = placements_of(layer["output_placements"])
        rests = placements_of(layer["rest_placements"])
        block = Boxing.apply(block, self.mesh, lies, rests, at_rest(lies), at_rest(rests))
        self.rests[layer["output"]] = (block, rests)


# ---- layers -------------------------------------------------------------------------------------


def linear(step, layer, data):
    weight = step.parameter(layer, 0)
    y = step.input(layer, 0) @ weight.t()
    if len(layer["parameters"]) > 1:
        bias = step.parameter(layer, 1)
        y = y + (bias if step.leads(placements_of(layer["output_placements"])) else 0 * bias)
    return y


def embedding(step, layer, data):
    ids, lies = data["ids"], placements_of(layer["output_placements"])
    table = step.parameter(layer, 0)
    name = layer["parameters"][0]
    parts = placements_of(step.plan["parameters"][name]["placements"])
    first = step.offset(step.plan["parameters"][name]["shape"][0], parts, 0)
    ids = redistribute(ids, step.mesh, [Replicate()] * step.mesh.ndim, batch_of(lies))
    row = ids - first
    here = (row >= 0) & (row < table.shape[0])
    y = F.embedding(torch.where(here, row, 0), table) * here.unsqueeze(-1)
    if len(layer["parameters"]) > 1:
        begin = step.offset(step.plan["training"]["sequence"], lies, 1)
        rows = step.parameter(layer, 1)[begin : begin + ids.shape[1]]
        y = y + (rows if step.leads(lies) else 0 * rows)
    return y


def batch_of(placements):
    """How token ids lie that make an activation."""
    return [p if p.is_shard(0) or p.is_shard(1) else Replicate() for p in placements]


def layernorm(step, layer, data):
    x = step.input(layer, 0)
    axes = [i for i, p in enumerate(placements_of(layer["input_placements"][0])) if p.is_shard(2)]
    count = x.shape[-1] * math.prod(step.mesh.size(axis) for axis in axes)
    mean = step.summed(x.sum(-1, keepdim=True), axes, False) / count
    variance = step.summed(((x - mean) ** 2).sum(-1, keepdim=True), axes, False) / count
    normal = (x - mean) * torch.rsqrt(variance + layer["epsilon"])
    return normal * step.parameter(layer, 0) + step.parameter(layer, 1)


def attention(step, layer, data):
    x, size = step.input(layer, 0), layer["head_size"]
    lies = placements_of(layer["input_placements"][0])
    batch, length = x.shape[:2]
    q, k, v = x.view(batch, length, -1, 3, size).unbind(3)
    gathered = [Replicate() if p.is_shard(1) else p for p in lies]
    partial = [Partial() if p.is_shard(1) else at_rest([p])[0] for p in lies]
    k, v = (
        Boxing.apply(part, step.mesh, lies, gathered, at_rest(lies), partial) for part in (k, v)
    )
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(size)
    if layer["causal"]:
        begin = step.offset(k.shape[1], lies, 1)
        behind = torch.arange(k.shape[1]) > begin + torch.arange(length).unsqueeze(1)
        scores = scores.masked_fill(behind, -math.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).reshape(batch, length, -1)


def cross_entropy(step, layer, data):
    x = step.input(layer, 0)
    lies = placements_of(layer["input_placements"][0])
    axes = [axis for axis, p in enumerate(lies) if p.is_shard(2)]
    vocabulary = x.shape[-1] * math.prod(step.mesh.size(axis) for axis in axes)
    first = step.offset(vocabulary, lies, 2)
    labels = redistribute(data["labels"], step.mesh, [Replicate()] * step.mesh.ndim, batch_of(lies))
    column = torch.arange(first, first + x.shape[-1])
    x = x.masked_fill(column >= layer["vocabulary"], -math.inf)
    most = x.detach().amax(-1, keepdim=True)
    for axis in axes:
        dist.all_reduce(most, dist.ReduceOp.MAX, step.mesh.get_group(axis))
    total = step.summed((x - most).exp().sum(-1, keepdim=True), axes, True)
    row = labels.unsqueeze(-1) - first
    here = (row >= 0) & (row < x.shape[-1])
    own = torch.where(here, (x - most).gather(-1, torch.where(here, row, 0)), 0.0)
    target = step.summed(own, axes, True)
    return (total.log() - target).sum() / data["tokens"]


def add(step, layer, data):
    return step.input(layer, 0) + step.input(layer, 1)


def gelu(step, layer, data):
    return F.gelu(step.input(layer, 0), approximate="tanh")


def relu(step, layer, data):
    return F.relu(step.input(layer, 0))


LAYERS = {
    "linear": linear,
    "embedding": embedding,
    "layernorm": layernorm,
    "attention": attention,
    "cross_entropy": cross_entropy,
    "add": add,
    "gelu": gelu,
    "relu": relu,
}


def forward(step, data):
    """The local part of the loss, and over which axes it is a sum."""
    whole = [Replicate()] * step.mesh.ndim
    if "input" in step.plan:
        step.rests[step.plan["input"]] = (data["input"], whole)
    for layer in step.plan["layers"]:
        result = LAYERS[layer["op"]](step, layer, data)
        if "output" not in layer:
            return result, placements_of(layer["output_placements"])
        step.leave(layer, result)
    raise SystemExit("the model has no loss")


# ---- training -----------------------------------------------------------------------------------


def initial(plan, mesh, seed):
    """Local blocks of the parameters, at their placements."""
    parameters = {}
    for name, entry in plan["parameters"].items():
        at, shape = entry["initial"], entry["shape"]
        values = at["mean"] + at["spread"] * normal_at(seed, at["stream"], math.prod(shape))
        if at["spread"] == 0:
            values = torch.full((math.prod(shape),), float(at["mean"]))
        values = values.view(shape[::-1]).t() if at["transposed"] else values.view(shape)
        values[at.get("rows", shape[0]) :] = 0
        whole = [Replicate()] * mesh.ndim
        block = redistribute(values, mesh, whole, placements_of(entry["placements"]))
        parameters[name] = block.detach().clone().contiguous().requires_grad_(True)
    return parameters


def data_of(plan, seed, step):
    training, last = plan["training"], plan["layers"][-1]
    shape = (training["global_batch"], training["sequence"])
    step_seed = bits_at(seed, (1 << 64) - 1, torch.tensor([step])).item() % (1 << 64)
    tokens = math.prod(shape)
    data = {"labels": draw_below(step_seed, STREAM_LABELS, tokens, last["vocabulary"]).view(shape)}
    if "input" in plan:
        features = plan["input_features"]
        drawn = normal_at(step_seed, STREAM_INPUT, tokens * features)
        data["input"] = drawn.view(*shape, features)
    for layer in plan["layers"]:
        if layer["op"] == "embedding":
            table = plan["parameters"][layer["parameters"][0]]
            rows = table["initial"].get("rows", table["shape"][0])
            data["ids"] = draw_below(step_seed, STREAM_IDS, tokens, rows).view(shape)
    return data, tokens


def optimizer_of(plan, parameters):
    t = plan["training"]
    common = {"lr": t["learning_rate"], "weight_decay": t["weight_decay"]}
    if t["optimizer"] == "sgd":
        return torch.optim.SGD(parameters.values(), momentum=t["momentum"], **common)
    kind = torch.optim.Adam if t["optimizer"] == "adam" else torch.optim.AdamW
    betas = (t["beta1"], t["beta2"])
    return kind(parameters.values(), betas=betas, eps=t["epsilon"], **common)


def gradient_norm(plan, mesh, parameters):
    squares = torch.zeros(())
    for name, parameter in parameters.items():
        lies = placements_of(plan["parameters"][name]["placements"])
        copies = math.prod(mesh.size(axis) for axis, p in enumerate(lies) if p.is_replicate())
        squares += (parameter.grad**2).sum() / copies
    dist.all_reduce(squares)
    return squares.sqrt().item()


def train_step(plan, mesh, parameters, seed, number):
    data, tokens = data_of(plan, seed, number)
    micro = plan["training"]["micro_batch"]
    loss = torch.zeros(())
    for first in range(0, plan["training"]["global_batch"], micro):
        part = {key: value[first : first + micro] for key, value in data.items()}
        part["tokens"] = tokens
        local, lies = forward(Step(plan, mesh, parameters), part)
        local.backward()
        loss += redistribute(local.detach(), mesh, lies, [Replicate()] * mesh.ndim)
    return loss.item()


def train(rank, plan, steps, seed, rendezvous, out):
    torch.set_num_threads(1)
    world = math.prod(plan["mesh"]["shape"])
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    mesh = init_device_mesh(
        "cpu", tuple(plan["mesh"]["shape"]), mesh_dim_names=tuple(plan["mesh"]["names"])
    )
    parameters = initial(plan, mesh, seed)
    optimizer = optimizer_of(plan, parameters)
    for number in range(1, steps + 1):
        optimizer.zero_grad()
        loss = train_step(plan, mesh, parameters, seed, number)
        norm, most = gradient_norm(plan, mesh, parameters), plan["training"]["clip_norm"]
        if 0 < most < norm:
            for parameter in parameters.values():
                parameter.grad *= most / norm
        optimizer.step()
        if rank == 0:
            print(f"{number} {loss:.9g} {norm:.9g}", file=out, flush=True)
    dist.destroy_process_group()


def run_rank(rank, plan, steps, seed, rendezvous, out):
    """The child of a fork, which ends here."""
    status = 1
    try:
        train(rank, plan, steps, seed, rendezvous, out)
        status = 0
    except Exception:  # of whatever kind: the parent hears of it by the status
        traceback.print_exc()
    os._exit(status)


def run_ranks(plan, steps, seed, out):
    """One process a rank. False: a rank failed, and the others were ended."""
    unknown = {layer["op"] for layer in plan["layers"]} - set(LAYERS)
    if unknown:
        raise SystemExit(f"layers of {plan['model']}: {sorted(unknown)} do not run, {sorted(LAYERS)} do")
    if any(layer.get("dropout", 0) > 0 for layer in plan["layers"]):
        raise SystemExit(f"layers of {plan['model']}: attention with dropout does not run, without it does")
    with tempfile.TemporaryDirectory() as folder:
        children = set()
        for rank in range(math.prod(plan["mesh"]["shape"])):
            child = os.fork()
            if child == 0:
                run_rank(rank, plan, steps, seed, folder + "/ranks", out)
            children.add(child)
        good = True
        while children:
            child, status = os.wait()
            children.discard(child)
            if status != 0 and good:
                good = False
                for other in children:
                    os.kill(other, signal.SIGKILL)
    return good


def main():
    if not 2 <= len(sys.argv) <= 4:
        raise SystemExit("Usage: dtensor_step.py FILE [STEPS [SEED]]")
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if not run_ranks(plan, steps, seed, sys.stdout):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
