"""The Python that `sbplan export` writes for torchtitan and Megatron-Bridge: it compiles, and sets what the
degrees say on stand-ins that have the names of torchtitan/config/configs.py and no others.

Usage: exports_python.py SBPLAN ROOT
"""

import dataclasses
import os
import py_compile
import subprocess
import sys
import tempfile
import types

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


class Checkpoint:
    def __init__(self, name):
        self.name = name

    def Config(self):
        return self.name


def stand_in():
    """The modules that a written file imports."""
    config = types.ModuleType("torchtitan.config")
    config.ParallelismConfig = ParallelismConfig
    checkpoint = types.ModuleType("torchtitan.distributed.activation_checkpoint")
    checkpoint.FullAC, checkpoint.SelectiveAC = Checkpoint("full"), Checkpoint("selective")
    for name in ("torchtitan", "torchtitan.distributed"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[config.__name__] = config
    sys.modules[checkpoint.__name__] = checkpoint


def export(arguments, target):
    """Prices degrees and exports the plan; returns the file's function."""
    with tempfile.TemporaryDirectory() as folder:
        plan, file = os.path.join(folder, "plan.json"), os.path.join(folder, "configure.py")
        for words in (["price", *model, *arguments.split(), "-o", plan], ["export", plan, "--to", target, "-o", file]):
            subprocess.run([program, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
        py_compile.compile(file, cfile=os.path.join(folder, "configure.pyc"), doraise=True)
        with open(file, encoding="utf-8") as text:
            scope = {}
            exec(compile(text.read(), file, "exec"), scope)
    return scope["configure"]


def configured(arguments):
    config = types.SimpleNamespace(
        model_spec=types.SimpleNamespace(model=types.SimpleNamespace(layers=[None] * 32)),
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


stand_in()
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
checks.end("4 files run")
