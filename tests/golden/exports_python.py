"""The Python that `sbplan export` writes for torchtitan and Megatron-Bridge: it compiles, and sets what the
degrees say on stand-ins that have the names of torchtitan/config/configs.py and no others. What the trainer of
DTensor's files refuses.

Usage: exports_python.py SBPLAN ROOT
"""

import dataclasses
import json
import os
import py_compile
import subprocess
import sys
import tempfile
import types
import unittest.mock

import checks

program, root = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
environment = {**os.environ, "SBPLAN_CONFIGS": os.path.join(root, "configs")}
model = "llama-3.1-8b dgx-h100-8x8 --set global_batch=256".split()


@dataclasses.dataclass(kw_only=True, slots=True)
class ParallelismConfig:
    data_parallel_replicate_degree: int = 1
    data_parallel_shard_degree: int = -1
    fsdp_reshard_after_forward: str = "default"
    tensor_parallel_degree: int = 1
    enable_sequence_parallel: bool = True
    pipeline_parallel_degree: int = 1
    module_fqns_per_model_part: list | None = None
    pipeline_parallel_schedule: str = "1F1B"
    num_pp_microbatches: int = 1
    context_parallel_degree: int = 1
    expert_parallel_degree: int = 1


@dataclasses.dataclass(kw_only=True, slots=True)
class TrainingConfig:
    num_tokens_per_microbatch_per_dp_rank: int = 0
    num_tokens_per_train_step: int = -1
    max_context_length: int = 2048
    mixed_precision_param: str = "bfloat16"
    disable_cuda_graphs: bool = False


@dataclasses.dataclass(kw_only=True, slots=True)
class ShardingConfig:
    state_shardings: dict = dataclasses.field(default_factory=dict)
    in_src_shardings: dict | None = None
    in_dst_shardings: dict | None = None
    out_src_shardings: tuple | None = None
    out_dst_shardings: tuple | None = None
    local_map: str | None = None


class Module(types.SimpleNamespace):
    """The configuration of a module; attributes are its own or those of its parts."""


class Model(Module):
    """Llama3Model.Config: its shardings are filled in when the trainer starts, over what is there."""

    def __init__(self, layers):
        def block():
            attention = Module(qkv_linear=Module(), inner_attention=Module(), wo=Module())
            feed_forward = Module(w1=Module(), w2=Module(), w3=Module())
            return Module(
                attention_norm=Module(), attention=attention, ffn_norm=Module(), feed_forward=feed_forward
            )

        super().__init__(
            tok_embeddings=Module(), layers=[block() for _ in range(layers)], norm=Module(), lm_head=Module()
        )

    def update_from_config(self):
        def fill(module):
            module.sharding_config = ShardingConfig(local_map="of the degrees")
            for part in list(vars(module).values()):
                if isinstance(part, Module):
                    fill(part)

        for module in (self, *self.layers):
            fill(module)


class Checkpoint:
    def __init__(self, name):
        self.name = name

    def Config(self):
        return self.name


overrides = {}


def override(*, target, description):
    """Overrides by the name that `override.imports` has, and what they are of."""

    def register(function):
        overrides[f"{function.__module__}.{function.__name__}"] = (target, function)
        return function

    return register


def stand_in():
    """The modules that a written file imports."""
    config = types.ModuleType("torchtitan.config")
    config.ParallelismConfig = ParallelismConfig
    checkpoint = types.ModuleType("torchtitan.distributed.activation_checkpoint")
    checkpoint.FullAC, checkpoint.SelectiveAC = Checkpoint("full"), Checkpoint("selective")
    for name in ("torchtitan", "torchtitan.distributed", "torchtitan.models", "torchtitan.models.common"):
        sys.modules[name] = types.ModuleType(name)
    for name, parts in {
        "spmd_types": {"R": "R", "I": "I", "P": "P", "S": lambda dim: f"S({dim})"},
        "torchtitan.config.override": {"override": override},
        "torchtitan.models.common.decoder_sharding": {
            "dense_param_placement": lambda *, tp: ("weight", tp),
            "dense_activation_placement": lambda *, tp, cp: ("activation", tp, cp),
            "dense_sequence_parallel_placement": lambda: ("activation", "S(0)", "S(0)"),
        },
        "torchtitan.models.llama3": {},
        "torchtitan.models.llama3.model": {"Llama3Model": types.SimpleNamespace(Config=Model)},
        "torchtitan.protocols": {},
        "torchtitan.protocols.sharding": {"ShardingConfig": ShardingConfig},
    }.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(parts)
    sys.modules[config.__name__] = config
    sys.modules[checkpoint.__name__] = checkpoint


exported = {}  # the strategy of the plan that was exported last, and what its export said


def export(arguments, target):
    """Prices degrees, or runs a command that makes a plan, and exports the plan; returns the file's function."""
    with tempfile.TemporaryDirectory() as folder:
        plan, file = os.path.join(folder, "plan.json"), os.path.join(folder, "configure.py")
        made = arguments if isinstance(arguments, list) else ["price", *model, *arguments.split()]
        said = ""
        for words in ([*made, "-o", plan], ["export", plan, "--to", target, "-o", file]):
            said = subprocess.run([program, *words], env=environment, check=True, capture_output=True, text=True).stdout
        with open(plan, encoding="utf-8") as text:
            exported.update(strategy=json.load(text)["strategy"], said=said)
        py_compile.compile(file, cfile=os.path.join(folder, "configure.pyc"), doraise=True)
        with open(file, encoding="utf-8") as text:
            scope = {"__name__": "configure_of_plan"}
            exec(compile(text.read(), file, "exec"), scope)
    return scope["configure"]


def configured(arguments, layers=32):
    config = types.SimpleNamespace(
        model_spec=types.SimpleNamespace(model=Model(layers)),
        override=types.SimpleNamespace(imports=[]),
        training=TrainingConfig(),
        parallelism=None,
        activation_checkpoint="unset",
    )
    return export(arguments, "torchtitan")(config)


def test_torchtitan(arguments, parallelism, training, checkpoint):
    config = configured(arguments)
    for key, value in parallelism.items():
        checks.expect(getattr(config.parallelism, key) == value, f"{arguments}: {key}")
    for key, value in training.items():
        checks.expect(getattr(config.training, key) == value, f"{arguments}: {key}")
    checks.expect(config.activation_checkpoint == checkpoint, f"{arguments}: recompute")


def test_stages():
    parts = configured("--tp 8 --pp 4 --zero 3 --set stage_cut=9,8,8,7").parallelism.module_fqns_per_model_part
    checks.expect([len(part) for part in parts] == [10, 8, 8, 9], "layers of stages, embedding, norm and head")
    names = [name for part in parts for name in part]
    checks.expect(
        names == ["tok_embeddings", *(f"layers.{i}" for i in range(32)), "norm", "lm_head"], "modules of stages"
    )


def test_bridge():
    class Recipe:
        """Any key may be set; those of the model are the recipe's."""

        def __init__(self, **keys):
            self.__dict__.update(keys)

    parts = {name: Recipe() for name in ("ddp", "optimizer", "train", "dataset")}
    shape = {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336, "num_attention_heads": 32}
    recipe = Recipe(model=Recipe(**shape, num_query_groups=8), **parts)
    recipe = export("--tp 4 --pp 2 --zero 1", "megatron-bridge")(recipe)
    checks.expect(recipe.model.tensor_model_parallel_size == 4, "tensor degree of a recipe")
    checks.expect(recipe.model.pipeline_model_parallel_size == 2, "stages of a recipe")
    checks.expect(recipe.ddp.use_distributed_optimizer is True, "ZeRO 1 of a recipe")


def lies(state):
    """A tensor that rests so, or is read or made so, as torchtitan has it: (tokens, features)."""
    return ("activation", {"S1": "S(0)", "S2": "S(-1)", "B": "R", "M": "I", "P": "P"}[state], "S(0)")


# Of a layer by role: its weight in PyTorch, (outputs, inputs), and where it reads and makes activations.
ROLES = {
    "column": ("S(0)", "B", "S2"),
    "row": ("S(1)", "S2", "P"),
    "sequence": ("R", "S1", "S1"),
    "replicate": ("R", "B", "B"),
    "mirror": ("I", "M", "M"),
}


class Plan:
    """What a plan file says of the tensor axes, which are those of the query's columns."""

    def __init__(self):
        self.layers = {layer["name"]: layer for layer in exported["strategy"]["layers"]}
        roles = self.layers["block0.q"]["axes"]
        self.axes = [axis for axis, role in enumerate(roles) if role == "column"]

    def of(self, name, key):
        states = {self.layers[name][key][axis] for axis in self.axes}
        checks.expect(len(states) == 1, f"{name}: one {key} over tensor axes")
        return states.pop()

    def role(self, name):
        return ROLES[self.of(name, "axes")]

    def rest(self, name):
        return self.of(name, "rest")


def expect_module(module, weight, comes, read, made, leaves, what):
    """A module with a weight; comes: None where its parent brings the input."""
    inputs = None if comes is None else {"input": lies(comes)}
    wanted = ShardingConfig(
        state_shardings={"weight": ("weight", weight)},
        in_src_shardings=inputs,
        in_dst_shardings=None if comes is None else {"input": lies(read)},
        out_src_shardings=lies(made),
        out_dst_shardings=lies(leaves),
    )
    checks.expect(module.sharding_config == wanted, f"{what}: {module.sharding_config} is {wanted}")


def expect_boundary(module, name, comes, read, what):
    wanted = ShardingConfig(in_src_shardings={name: lies(comes)}, in_dst_shardings={name: lies(read)})
    checks.expect(module.sharding_config == wanted, f"{what}: {module.sharding_config} is {wanted}")


def expect_block(block, plan, name):
    """The shardings of a block, from roles and rests of the plan file alone."""
    (_, _, residual), norm = plan.role(f"{name}.add1"), plan.role(f"{name}.add1")[0]
    normed, up_rest = plan.rest(f"{name}.norm1"), plan.rest(f"{name}.gate_up")
    weight, read, made = plan.role(f"{name}.projection")
    expect_module(block.attention_norm, norm, residual, residual, residual, normed, f"{name}.norm1")
    expect_boundary(block.attention, "x_TD", normed, "B", f"{name}.attention")
    expect_module(block.attention.wo, weight, "S2", read, made, residual, f"{name}.projection")
    normed = plan.rest(f"{name}.norm2")
    expect_module(block.ffn_norm, norm, residual, residual, residual, normed, f"{name}.norm2")
    weight, read, made = plan.role(f"{name}.gate_up")
    expect_boundary(block.feed_forward, "x", normed, read, f"{name}.feed_forward")
    for part in (block.feed_forward.w1, block.feed_forward.w3):
        expect_module(part, weight, None, None, made, up_rest, f"{name}.gate_up")
    weight, read, made = plan.role(f"{name}.down")
    expect_module(block.feed_forward.w2, weight, up_rest, read, made, residual, f"{name}.down")
    for part in (block.attention.qkv_linear, block.attention.inner_attention):
        checks.expect(part.sharding_config.local_map == "of the degrees", f"{name}: heads are the degrees'")


def count_moved(plan, name):
    """Outputs that the plan moves twice, or lets lie as partial sums, and a module moves at once."""
    residual = plan.role(f"{name}.add1")[2]
    ways = {part: (plan.role(f"{name}.{part}")[2], residual) for part in ("projection", "down")}
    ways["attention"] = ("S2", plan.role(f"{name}.projection")[1])
    ways["swiglu"] = (plan.rest(f"{name}.gate_up"), plan.role(f"{name}.down")[1])
    rests = {part: plan.rest(f"{name}.{part}") for part in ways}
    return sum(rests[part] not in (made, read) or rests[part] == "P" for part, (made, read) in ways.items())


def split(zero, adds, projection, gate_up, down, ways=2):
    """The command that searches a small llama on 8 GPUs whose layers are split so over tensor axes."""
    roles = {"q": "column", "kv": "column", "attention": "head", "add1": adds, "add2": adds}
    roles.update(projection=projection, gate_up=gate_up, down=down)
    fixes = {"embedding": "vocab", "head": "column", **{f"block0.{name}": role for name, role in roles.items()}}
    keys = f"layers=3 global_batch=8 micro_batch={8 // ways} pipeline=1 gather_blocks=true regather=true zero={zero}"
    words = ["search", "llama-3.1-8b", "dgx-h100-8x8", "--devices", "8"]
    for key in keys.split():
        words += ["--set", key]
    for name, role in fixes.items():
        words += ["--fix", f"{name}=batch:1/{8 // ways},{role}:1/{ways}" if ways < 8 else f"{name}={role}:1/8"]
    return words


def test_shardings(*roles, ways=2):
    """Layers one by one: nothing of them is lost, and the override shards them behind the trainer's own."""
    overrides.clear()
    config = configured(split(*roles, ways=ways), layers=3)
    plan, model = Plan(), config.model_spec.model
    checks.expect(" x 3," not in exported["said"], f"{roles}: layers are lost: {exported['said']}")
    checks.expect(config.parallelism.tensor_parallel_degree == ways, f"{roles}: tensor degree")
    moved = 3 * count_moved(plan, "block0")
    checks.expect(
        ("rest otherwise" in exported["said"]) == (moved > 0) and (moved == 0 or f" {moved} outputs" in exported["said"]),
        f"{roles}: {moved} outputs rest otherwise: {exported['said']}",
    )
    model.update_from_config()
    for name in config.override.imports:
        target, function = overrides[name]
        checks.expect(target is Model and function(model) is model, f"{roles}: the override returns the model")
    checks.expect(len(config.override.imports) == 1, f"{roles}: one override")
    norm, _, residual = plan.role("block0.add1")
    for place, block in enumerate(model.layers):
        expect_block(block, plan, f"block{place}")
    wanted = ShardingConfig(out_dst_shardings=lies(residual), local_map="of the degrees")
    checks.expect(model.tok_embeddings.sharding_config == wanted, f"{roles}: embedding")
    expect_module(model.norm, norm, residual, residual, residual, "B", f"{roles}: final norm")
    checks.expect(model.lm_head.sharding_config.local_map == "of the degrees", f"{roles}: the head is the degrees'")


def test_no_shardings(*roles):
    """Layers that cannot be said, or that the degrees say: no override."""
    config = configured(split(*roles), layers=3)
    checks.expect(config.override.imports == [], f"{roles}: no override")
    return " x 3," in exported["said"]


def test_dropout_refused():
    """The trainer of DTensor's files, which needs no PyTorch to refuse one."""
    parts = ("", ".nn", ".nn.functional", ".distributed", ".distributed.device_mesh", ".distributed.tensor")
    sys.modules.update({"torch" + part: unittest.mock.MagicMock() for part in parts})
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(root, "planner/export"))
    trainer = __import__("dtensor_step")
    trainer.run_rank = lambda *_: os._exit(0)
    for dropout in ("0", "0.1"):
        with tempfile.TemporaryDirectory() as folder:
            plan, file = os.path.join(folder, "plan.json"), os.path.join(folder, "dtensor.json")
            made = ["price", "tiny-gpt", "laptop-4", "--tp", "2", "--set", f"attention_dropout={dropout}"]
            for words in ([*made, "-o", plan], ["export", plan, "--to", "dtensor", "-o", file]):
                subprocess.run([program, *words], env=environment, check=True, capture_output=True)
            with open(file, encoding="utf-8") as text:
                written = json.load(text)
        refusal = ""
        try:
            trainer.run_ranks(written, 1, 0, None)
        except SystemExit as said:
            refusal = str(said)
        checks.expect(("attention with dropout" in refusal) == (dropout != "0"), f"dropout {dropout}: {refusal}")


stand_in()
test_dropout_refused()
test_torchtitan(
    "--tp 2 --cp 2 --pp 4 --zero 3 --recompute full --micro-batch 2",
    {
        "tensor_parallel_degree": 2,
        "context_parallel_degree": 2,
        "pipeline_parallel_degree": 4,
        "data_parallel_shard_degree": 4,
        "data_parallel_replicate_degree": 1,
        "fsdp_reshard_after_forward": "always",
        "enable_sequence_parallel": False,
        "num_pp_microbatches": 32,
    },
    {"num_tokens_per_microbatch_per_dp_rank": 2 * 8192, "num_tokens_per_train_step": 256 * 8192},
    "full",
)
test_torchtitan(
    "--tp 4 --zero 0 --sequence-parallel --recompute selective",
    {"data_parallel_replicate_degree": 16, "data_parallel_shard_degree": 1, "enable_sequence_parallel": True},
    {"max_context_length": 8192, "mixed_precision_param": "bfloat16"},
    "selective",
)
test_stages()
test_bridge()
test_shardings(0, "sequence", "column", "sequence", "replicate")
test_shardings(0, "sequence", "row", "replicate", "replicate")
test_shardings(0, "replicate", "row", "replicate", "column")
test_shardings(3, "sequence", "row", "row", "column")
test_shardings(0, "mirror", "row", "mirror", "row", ways=8)
checks.expect(not test_no_shardings(3, "sequence", "row", "column", "row"), "Megatron's split loses no layer")
checks.expect(test_no_shardings(3, "sequence", "row", "replicate", "row"), "whole weights are lost beside ZeRO 3")
checks.end("11 files run")
