"""Plans how to split the training of a model over a cluster: the program sbplan, from Python.

    plan = sbplan.search("llama-3.1-8b", "dgx-h100-8x8", set={"global_batch": 256})
    print(plan.layout.text, plan.step_s)

A model and a cluster are names that the program lists, paths of files, or dictionaries of what such
a file holds. Keywords are the options of the command line: ``time_limit=10`` is ``--time-limit 10``,
``quick=True`` is ``--quick``, a list repeats its option, and ``set={"zero": 3}`` is ``--set zero=3``.
"""
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from typing import Any, Dict, List, Optional, Tuple

__all__ = ["Error", "Infeasible", "Layer", "Layout", "Plan", "Stage", "explain", "price", "program", "search"]


class Error(Exception):
    """The program refused its input; the message is the program's."""


class Infeasible(Error):
    """There is no plan; ``answer`` is the program's object, which says what is lacking."""

    def __init__(self, answer: Dict[str, Any]):
        memory = answer.get("memory", {})
        super().__init__("no plan fits: %s of %s bytes" % (memory.get("needed_bytes"), memory.get("available_bytes"))
                         if "needed_bytes" in memory else "no plan was found")
        self.answer = answer


@dataclasses.dataclass(frozen=True)
class Layout:
    """A plan in the words of those who train."""
    text: str  # "TP 8, PP 8 x 3 interleaved, DP 16, ..."
    tensor: int
    pipeline: int
    chunks: int  # pieces of a stage
    data: int
    context: int
    expert: int
    zero: int
    micro_batch_per_replica: float
    tokens: int  # of a step
    sequence_parallel: bool
    recompute: str
    stage_blocks: Tuple[int, ...]  # none where the model has no blocks


@dataclasses.dataclass(frozen=True)
class Stage:
    first_op: int
    parameters: int  # of a device
    compute_s: float
    bubble_s: float
    in_flight: int  # micro-batches
    device_bytes: int


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    op: str
    repeats: int
    roles: Dict[str, List[int]]  # ways that each role splits it, by level of the cluster
    zero: Optional[int]
    compute_s: float
    communication_s: float


@dataclasses.dataclass(frozen=True)
class Plan:
    status: str  # "optimal", "feasible", ...
    step_s: float
    lower_bound_s: Optional[float]  # nothing costs less
    layout: Layout
    memory_bytes: int  # of a device
    parallel: Dict[str, Any]  # how the step is cut: the keys of --set
    stages: Tuple[Stage, ...]
    layers: Tuple[Layer, ...]
    answer: Dict[str, Any] = dataclasses.field(repr=False)  # all that the program says of it


def program() -> str:
    """The program: $SBPLAN, else that of this Python environment, else the one in $PATH."""
    name = os.environ.get("SBPLAN")
    if name:
        return name
    schemes = [sysconfig.get_default_scheme() if hasattr(sysconfig, "get_default_scheme") else None,
               os.name + "_user"]
    for scheme in schemes:
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        name = os.path.join(folder, "sbplan")
        if os.access(name, os.X_OK):
            return name
    name = shutil.which("sbplan")
    if name is None:
        raise Error("the program sbplan is neither in this environment nor in $PATH")
    return name


def search(model, cluster, **options) -> Plan:
    """The cheapest plan; raises Infeasible where there is none. ``output=FILE`` keeps it as a file."""
    return _plan(_ask("search", (model, cluster), options))


def price(model, cluster, **options) -> Plan:
    """A plan by its degrees, ``tp=4, pp=2``, by ``megatron="..."`` or by ``strategy=FILE``."""
    return _plan(_ask("price", (model, cluster), options))


def explain(plan, **options) -> Plan:
    """A plan file, checked and priced again; its ``answer`` holds tensors and collectives, too."""
    answer = _ask("explain", (plan,), options)
    return _plan({**answer["search"], **answer})


def _words(options):
    """The options of the command line."""
    for name, value in options.items():
        option = "-o" if name == "output" else "--" + name.replace("_", "-")
        if isinstance(value, dict):
            value = ["%s=%s" % (key, _value(one)) for key, one in value.items()]
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                yield option
            elif one is not None and one is not False:
                yield from (option, str(one))


def _value(value):
    return json.dumps(value) if isinstance(value, bool) else value


@contextlib.contextmanager
def _files(operands):
    """Names of the operands; those that are dictionaries are written to files for a while."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for place, operand in enumerate(operands):
            if isinstance(operand, dict):
                name = os.path.join(folder, "%d.json" % place)
                with open(name, "w", encoding="utf-8") as file:
                    json.dump(operand, file)
                operand = name
            names.append(os.fspath(operand))
        yield names


def _ask(command, operands, options):
    """What the program prints: an object."""
    with _files(operands) as names:
        done = subprocess.run([program(), command, *_words(options), "--json", "--", *names],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode not in (0, 1):
        raise Error(done.stderr.strip() or "sbplan %s ended with status %d" % (command, done.returncode))
    answer = json.loads(done.stdout)
    if done.returncode == 1:
        raise Infeasible(answer)
    return answer


def _make(kind, values):
    """A dataclass of those values that it has fields for."""
    return kind(**{field.name: values.get(field.name) for field in dataclasses.fields(kind)})


def _plan(answer) -> Plan:
    layout = {**answer["layout"], "stage_blocks": tuple(answer["layout"].get("stage_blocks", ()))}
    return Plan(status=answer["status"], step_s=answer["cost"]["step_s"],
                lower_bound_s=answer.get("lower_bound_s"), layout=_make(Layout, layout),
                memory_bytes=answer["memory"]["device_bytes"], parallel=answer["parallel"],
                stages=tuple(_make(Stage, stage) for stage in answer["stages"]),
                layers=tuple(_make(Layer, layer) for layer in answer["layers"]), answer=answer)
