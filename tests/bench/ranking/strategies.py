"""What is trained, on which virtual clusters, and by which strategies.

Sizes are such that arithmetic and communication take like shares of a step: about 2 to 6 M
parameters and 1,024 tokens or samples for 8 devices, of an eighth of a core each, behind links of
some hundred Mbit/s.
"""

RANKS = 8

# Hosts, ranks of each, and the shaped rate of every host's link.
CLUSTERS = {
    "2x4": {"hosts": 2, "ranks": 4, "mbit": 300},
    "4x2": {"hosts": 4, "ranks": 2, "mbit": 400},
}

TRANSFORMER = {"layers": 4, "hidden": 256, "heads": 8, "vocab": 1024, "sequence": 64,
               "global_batch": 16, "precision": "fp32", "attention": "flash"}


def dense_layers(sizes, batch):
    """Linears with ReLUs between, and a loss."""
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        layers.append({"op": "linear", "name": f"fc{i + 1}", "in": inputs, "out": outputs,
                       "bias": True})
        layers.append({"op": "relu", "name": f"relu{i + 1}"})
    layers[-1] = {"op": "cross_entropy", "name": "loss"}
    return {"global_batch": batch, "precision": "fp32", "layers": layers}


# VGG's dense layers (Simonyan and Zisserman, 2015) at an eighth of their widths.
MODELS = {
    "gpt": dict(TRANSFORMER, architecture="gpt"),
    "llama": dict(TRANSFORMER, architecture="llama", kv_heads=4, ffn=704),
    "vgg-dense": dense_layers([3136, 512, 512, 128], 1024),
    "mixture": dict(TRANSFORMER, architecture="mixtral", layers=2, kv_heads=4, ffn=384, experts=8,
                    top_k=2),
}

MODEL_OF_CLUSTER = {"2x4": ("gpt", "mixture"), "4x2": ("llama", "vgg-dense")}

# The rows of AutoDDL's figures 9 and 10 and of the other papers, by the space that `sbplan search`
# takes the best of. The searched plan is that of the whole space.
SEARCHED = "searched"
BASELINES = {
    "data parallel": "data-parallel",
    "Megatron": "megatron",
    "ZeRO": "zero",
    "GShard": "gshard",
    "SUMMA": "summa",
    "Myelin": "myelin",
    SEARCHED: "full",
}


def degrees(tp=1, pp=1, micro_batch=None, **more):
    """Options of `sbplan price`; micro_batch: of a replica, by default its whole share."""
    words = ["--tp", str(tp), "--pp", str(pp)]
    if micro_batch is not None:
        words += ["--micro-batch", str(micro_batch)]
    for key, value in more.items():
        words += ["--" + key.replace("_", "-")] + ([] if value is True else [str(value)])
    return words


def transformer_degrees(batch):
    """Strategies in the words of Megatron-LM and FSDP."""
    return {
        "TP 8": degrees(tp=8, micro_batch=batch),
        "TP 4": degrees(tp=4, micro_batch=batch // 2),
        "TP 4, sequence parallel": degrees(tp=4, micro_batch=batch // 2, sequence_parallel=True),
        "TP 2": degrees(tp=2, micro_batch=batch // 4),
        "TP 2, ZeRO 1": degrees(tp=2, micro_batch=batch // 4, zero=1),
        "ZeRO 3": degrees(micro_batch=batch // RANKS, zero=3),
        "PP 2": degrees(pp=2, micro_batch=1),
        "PP 2, TP 4": degrees(pp=2, tp=4, micro_batch=4),
        "PP 4, TP 2": degrees(pp=4, tp=2, micro_batch=2),
    }


def layer_splits(layers):
    """A strategy file: roles of each layer, outermost level first."""
    return {"layers": [{"name": name, "roles": roles} for name, roles in layers.items()]}


def dense_splits(cluster):
    """Splits of dense layers by batch (b), column (c) and row (r)."""
    outer, inner = CLUSTERS[cluster]["hosts"], CLUSTERS[cluster]["ranks"]
    one = {"b": "batch", "c": "column", "r": "row"}

    def role(letters):
        roles = {}
        for level, (letter, size) in enumerate(zip(letters, (outer, inner))):
            roles.setdefault(one[letter], [1, 1])[level] = size
        return roles

    def splits(first, second, third):
        return layer_splits({"fc1": role(first), "fc2": role(second), "fc3": role(third)})

    return {
        "columns": splits("cc", "cc", "cc"),
        "rows, columns": splits("rr", "cc", "rr"),
        "columns, rows": splits("cc", "rr", "cc"),
        "batch x columns": splits("bc", "bc", "bc"),
        "batch x columns, rows": splits("bc", "br", "bc"),
        "columns x batch": splits("cb", "cb", "cb"),
        "columns x batch, rows x batch": splits("cb", "rb", "cb"),
        "fc1 by rows, rest by batch": splits("rr", "bb", "bb"),
        "fc1 by rows x batch, rest by batch": splits("rb", "bb", "bb"),
    }
