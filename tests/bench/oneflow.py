#!/usr/bin/env python3
"""OneFlow's experiments (Yuan et al., 2021, section 6, figures 9 to 16) in small on CPU ranks: oneflow_run.md.

Every plan is made, verified and measured by commands that a user would type. Devices are virtual: each
rank rests after it has computed (`slowdown` of a cluster file), so that ranks which share cores compute
side by side and the wall time of a step is that of a parallel machine.

usage: oneflow.py BUILD OUT [--budget-s S] [--rounds N]
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "ranking"))
import page  # noqa: E402

RANKS, SLOWDOWN = 8, 16
CAP_MIB = 128  # of a rank, of the tables of figure 13
RUN_CAP_KB = 1400000  # of the address space of all ranks of a run

RESNET = ["resnet-50", "depth=18", "image=64", "classes=100"]
BERT = ["bert-large", "layers=2", "hidden=128", "heads=4", "vocab=2048", "head=mlm", "attention_dropout=0",
        "sequence=64", "precision=fp32"]
FACE = ["face", "depth=18", "image=16", "precision=fp32", "global_batch=16"]
TABLES = ["wide-deep", "layers=3", "ffn=256", "global_batch=256"]
GPT = ["tiny-gpt", "layers=4", "hidden=128", "heads=8", "vocab=2048", "sequence=64", "global_batch=16"]


class Refused(Exception):
    """A program said no, or cannot be read; the text is the reason."""


def output_of(words):
    """What a program prints."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"{words[0]}: {error.strerror}") from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or [f"{words[0]}: exit {done.returncode}"]
        raise Refused(next((line for line in lines if line.startswith("infeasible")), lines[-1]))
    return done.stdout


class Row:
    """A plan, and what `sbplan run --verify` and `sbplan bench` say of it."""

    def __init__(self, label, file):
        self.label, self.file = label, file
        self.verified = self.times = None

    def plan(self):
        return json.loads(self.file.read_text())


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.program = pathlib.Path(options.build).resolve() / "planner/sbplan"
        self.commands, self.plans = [], 0

    def sbplan(self, *words, limit_kb=0):
        """What the command prints. It is kept for the page."""
        words = [str(word) for word in words]
        said = shlex.join(["sbplan", *words]).replace(str(self.folder) + "/", "")
        self.commands.append(f"(ulimit -v {limit_kb}; {said})" if limit_kb else said)
        print("$", self.commands[-1], flush=True)
        limit = ["sh", "-c", f'ulimit -v {limit_kb}; exec "$@"', "sh"] if limit_kb else []
        return output_of([*limit, self.program, *words])

    def make(self, label, command, model, *words):
        """A plan of `sbplan search` or `sbplan price`; a word with "=" but no dash is a --set."""
        self.plans += 1
        file = self.folder / f"{self.plans}.json"
        sets = [word for key in (*model[1:], *(w for w in words if is_set(w)), f"cluster.device.slowdown={SLOWDOWN}")
                for word in ("--set", key)]
        self.sbplan(command, model[0], self.folder / "cluster.json", *(w for w in words if not is_set(w)), *sets,
                    "-o", file)
        return Row(label, file)

    def calibrated(self):
        """The machine that was calibrated: its processor and cores."""
        return json.loads((self.folder / "cluster.json").read_text())["measured"]

    def cores(self):
        return self.calibrated()["cores"]

    def measure(self, rows):
        """Verifies each plan by a step, then lets them take turns."""
        for row in rows:
            answer = json.loads(self.sbplan("run", row.file, "--verify", "--json"))
            row.verified = answer["verification"]["worst_ratio"]
        answer = json.loads(self.sbplan("bench", *(row.file for row in rows), "--rounds", self.options.rounds,
                                        "--steps", 1, "--json"))
        for row, times in zip(rows, answer["plans"]):
            row.times = times
        return rows


def is_set(word):
    return "=" in str(word) and not str(word).startswith("-")


def strategy(bench, row, name, roles):
    """The strategy of a plan with the roles of some layers changed, as a file."""
    layers = [{"name": layer["name"], "roles": roles.get(layer["name"], layer["roles"])}
              for layer in row.plan()["strategy"]["layers"] if "roles" in layer]
    file = bench.folder / f"{name}.json"
    file.write_text(json.dumps({"layers": layers}))
    return file


# --- tables ---


def step_s(row):
    """Seconds of a step: predicted, measured by the clock, and what was computed on the predicted timeline."""
    measured = row.times["measured"]
    return row.times["predicted"]["wall_s"], measured["wall_s"]["median"], measured["replay_s"]["median"]


def rates(row):
    """Sequences, images or samples a second: predicted, measured, replayed."""
    return [row.plan()["model"]["global_batch"] / seconds for seconds in step_s(row)]


def cells(row):
    predicted_s, measured_s, replayed_s = step_s(row)
    return [row.label, *map(page.ms, (predicted_s, measured_s)), f"{measured_s / predicted_s:.2f}", page.ms(replayed_s),
            f"{replayed_s / predicted_s:.2f}", page.four(rates(row)[1]),
            f"{row.times['measured']['arena_bytes'] / 2**20:.1f}", f"{row.verified:.2f}"]


def table(rows, more=(), extra=None):
    columns = ["plan", "predicted, ms", "measured", "ratio", "replayed", "ratio", "samples/s", "MiB a rank",
               "of the bound", *more]
    return page.markdown(columns, [cells(row) + (extra(row) if extra else []) for row in rows])


def over(row, other):
    """A step of one plan over that of another: by prediction, by the clock and replayed."""
    return [mine / its for mine, its in zip(step_s(row), step_s(other))]


def ratios(row, other):
    predicted, measured, replayed = over(row, other)
    return f"{predicted:.2f} by prediction, {measured:.2f} measured, {replayed:.2f} replayed"


# --- the figures: each returns paragraphs of the page ---


def actor_row(said, name):
    """A row of what bench_actors prints: CPU times of four stages, then four numbers."""
    match = re.search(f"^ *{name}((?: +[.0-9]+){{8}})", said, re.MULTILINE)
    if match is None:
        raise Refused(f"bench_actors prints no row of eight numbers for: {name}")
    numbers = match.group(1).split()
    return [name, " / ".join(numbers[:4]), *numbers[4:]]


def figure_9(bench):
    said = output_of([bench.program.parent.parent / "tests/bench/bench_actors"])
    rows = [actor_row(said, name)
            for name in ("synthetic data", "pipeline of actors, 2 slots each", "one stage after the other")]
    bench.commands.append("./dev bench actors")
    columns = ["way", "CPU ms of reading / preparing / copying / training", "wall, ms", "of synthetic",
               "a core a lane, by CPU, ms", "of synthetic"]
    return ["Theirs: throughput with OneFlow's loader is close to that with synthetic data; TensorFlow's and PyTorch's "
            "loaders are well below, DALI near. Ours: reader, preprocessing, copy and training are actors with two "
            "slots for each result, as theirs with two registers; a step trains a matrix on 256 records of 1,024 bytes "
            "of a file.", page.markdown(columns, rows),
            "CPU times are the least of all rounds, wall times medians; `of synthetic` beside these is the median of the "
            "ratios of rounds. What a step takes with a core for each of the four lanes is computed from the CPU times, "
            f"not measured: {bench.cores()} cores ran them. No GPU, no JPEGs and no other framework ran."]


def scaling(bench, model, per_rank):
    """Data parallelism on 1 to 8 ranks, with so many samples each."""
    return [bench.make(f"{ranks} rank{'s' if ranks > 1 else ''}", "search", model, "--runnable", "--space",
                       "data-parallel", "--devices", ranks, f"global_batch={per_rank * ranks}",
                       f"micro_batch={per_rank * ranks}")
            for ranks in (1, 2, 4, 8)]


def figure_10(bench):
    parts = ["Theirs: images and sequences a second of ResNet and BERT on up to 32 V100 beside other frameworks, "
             "in FP32 and FP16: OneFlow is 23 to 31 % ahead of the official ones in FP32, and 9 to 47 % ahead of "
             "NVIDIA's versions on BERT. Ours: no second framework runs here, so that what can be compared is how data "
             "parallelism scales. FP16 is left out: CPUs compute in it by way of single precision."]
    for title, model, per_rank in (("ResNet-18 on 64 x 64, 4 images a rank", RESNET, 4),
                                   ("BERT of 2 layers, 128 wide, 4 sequences of 64 a rank", BERT, 4),
                                   ("the same with its gradients clipped", [*BERT, "clip_norm=1"], 4)):
        rows = bench.measure(scaling(bench, model, per_rank))
        parts += [f"{title}:", table(rows, ["of linear, predicted", "replayed"], lambda row: [
            page.percent(over(rows[0], row)[way]) for way in (0, 2)])]
    return parts + ["Steps of one rank hold no communication, those of eight all of it, and what ranks wait for cores "
                    "that others use; replayed is without that wait. Clipping adds one all-reduce of a number and a "
                    "pass over the gradients: MXNet's BERT, which does not clip, has that much less to do. "
                    "`sbplan run --trace` shows which tasks take longer than their price.",
            "Why they differ: theirs is a lead over other frameworks, which cannot show where one framework runs "
            "at both ends. What is left is how a plan scales, and that is nearly linear in ours by prediction, "
            "too: a virtual device computes 16 times as slowly as its core, while messages go at the speed of "
            "memory. Where measured and predicted differ they do so on one rank already, which sends nothing: it "
            "is the price of computation."]


def figure_12(bench):
    parts = ["Theirs: throughput of face recognition with ResNet and MobileFaceNet backbones beside InsightFace, which "
             "splits the classes by hand; OneFlow is slightly ahead, since both do the same. Ours: the backbone by "
             "batch (18 layers, 16 images of 16 x 16, 4 ranks), the layer over the classes once by batch and once by "
             "class. Its softmax then takes two all-reduces of a number a sample, of the maximum and of the sum, as "
             "theirs (figure 11)."]
    rows, gains = [], []
    for classes in (2048, 8192, 32768):
        model = [*FACE, f"classes={classes}"]
        whole = bench.make(f"{classes} classes, by batch", "search", model, "--runnable", "--space", "data-parallel",
                           "--devices", 4, "micro_batch=16")
        split = strategy(bench, whole, f"classes-{classes}", {"head": {"column": [4]}})
        pair = [whole, bench.make(f"{classes} classes, by class", "price", model, "--devices", 4, "--strategy", split)]
        rows += bench.measure(pair)
        gains.append(f"of {classes} classes {ratios(*pair)}")
    parts.append(table(rows))
    return parts + [f"Ratios of a step by batch to one by class: {'; '.join(gains)}. By class gradients of the classes are "
                    "not summed, their update is shared, and a rank holds a quarter of them.",
            "Why they differ: theirs are two programs that split the classes alike, so that neither gains; ours "
            "is one program with the split and without, and the gain grows with the classes. Why it is smaller "
            "than predicted was not found: the step by class exceeds its price by more than the step by batch, "
            "most so with many classes."]


def figure_13(bench):
    cap = f"{CAP_MIB}M"
    parts = ["Theirs: latency and memory of Wide & Deep by vocabulary beside HugeCTR, which runs out of memory above "
             "51.2 M ids; OneFlow needs less of both, with tables split by ids or by columns. Ours: one table for the "
             f"wide and one, 16 wide, for the deep part on 4 ranks that have {CAP_MIB} MiB each (`--memory-limit {cap}`). "
             "Every rank's arena has the size that is predicted, to the byte, or the run ends with an error."]
    rows, refused, everywhere = {}, {}, {}
    for ids in (125000, 250000, 500000, 1000000):
        model = [*TABLES, f"vocab={ids}"]
        try:
            whole = bench.make(f"{ids} ids, on every rank", "search", model, "--runnable", "--space", "data-parallel",
                               "--devices", 4, "--memory-limit", cap, "micro_batch=256")
            group = {"on every rank": whole}
        except Refused as reason:
            whole = bench.make("", "search", model, "--runnable", "--space", "data-parallel", "--devices", 4,
                               "micro_batch=256")
            refused[ids] = reason
            group = {}
        everywhere[ids] = whole
        for name, role in (("by ids", "vocab"), ("by columns", "column")):
            split = strategy(bench, whole, f"{role}-{ids}", {"wide": {"vocab": [4]}, "deep": {role: [4]}})
            group[name] = bench.make(f"{ids} ids, {name}", "price", model, "--devices", 4, "--memory-limit", cap,
                                     "--strategy", split)
        bench.measure(list(group.values()))
        rows.update({(ids, way): row for way, row in group.items()})
    parts.append(table(rows.values()))
    parts += [f"With {ids} ids on every rank: `{reason}`" for ids, reason in refused.items()]
    most = max(everywhere)
    parts.append(f"Run where the system gives no more than `ulimit -v {RUN_CAP_KB}`, the plan of {most} ids on every rank"
                 f"{', made without the limit,' if most in refused else ''} {under_limit(bench, everywhere[most])}; that "
                 f"of {most} by ids {under_limit(bench, rows[most, 'by ids'])}.")
    return parts + [f"Tables on every rank are also updated on every rank. {on_every_rank(rows)}Split by ids, rows come "
                    "from all ranks and are summed; split by columns each rank has a part of every row. No HugeCTR runs "
                    "here; theirs are V100 of 16 GB.",
            "Why they differ: theirs sets two programs side by side, of which ours cannot say why one needs more "
            "memory. Ours is one program with the split and without: split, each rank holds and updates its share "
            "of the tables. Rows that no rank looked up are updated, too, so that steps grow with the ids."]


def under_limit(bench, row):
    """What becomes of a plan that is run under a limit of the system."""
    try:
        bench.sbplan("run", row.file, limit_kb=RUN_CAP_KB)
    except Refused as reason:
        return f"is refused: `{reason}`"
    return "runs"


def on_every_rank(rows):
    """What tables on every rank cost, of the largest that fit; rows: by ids and way."""
    fit = [ids for ids, way in rows if way == "on every rank"]
    if not fit:
        return ""
    whole, split = rows[max(fit), "on every rank"], rows[max(fit), "by columns"]
    return f"Ratios of such a step to one by columns, of {max(fit)} ids: {ratios(whole, split)}. "


def figure_15(bench):
    rows = [bench.make(f"ZeRO {level}{', recomputing' if recompute == 'full' else ''}" if level else
                       f"no ZeRO{', recomputing' if recompute == 'full' else ''}", "search", GPT, "--runnable",
                       "--space", "data-parallel", "--devices", 4, f"zero={level}", f"recompute={recompute}",
                       "micro_batch=16")
            for recompute in ("none", "full") for level in range(4)]
    rows = bench.measure(rows)
    memory = [row.times["measured"]["arena_bytes"] for row in rows]
    return ["Theirs: memory and throughput of GPT-2 beside ZeRO-DP with activations checkpointed or not: less memory "
            "at a higher rate. Ours: a GPT of 4 layers, 128 wide, 2,048 words, on 4 replicas, in single precision with Adam, "
            "optimizer states (1), gradients (2) and weights (3) shared out:", table(rows),
            f"Ratios of a step of level 3 to one of none: {ratios(rows[3], rows[0])}; recomputing "
            f"{ratios(rows[7], rows[4])}.",
            f"All states shared out leave {page.percent(memory[3] / memory[0])} of the memory, with recomputation "
            f"{page.percent(memory[7] / memory[0])}. Replicas share the updates from level 1 on; level 3 gathers "
            "weights twice. No ZeRO-DP runs here to compare with, and no mixed precision, whose fp32 master copies make "
            "the share of the states larger.",
            "Why they differ: theirs sets two implementations side by side, ours the levels of one, whose kernels "
            "and schedule are the same, so that hardly more than the memory changes. Of 16 bytes a parameter the "
            "optimizer states are half in single precision and three quarters in theirs: they save more."]


def figure_16(bench):
    shapes = [("data 8", 8, 1, 1), ("tensor 8", 1, 8, 1), ("data 4 x tensor 2", 4, 2, 1),
              ("data 2 x tensor 4", 2, 4, 1), ("data 2 x tensor 2 x pipeline 2", 2, 2, 2), ("tensor 2 x pipeline 4", 1, 2, 4)]
    rows = [bench.make(label, "price", GPT, "--dp", data, "--tp", tensor, "--pp", stages,
                       "--micro-batch", 2 if stages > 1 else 16 // data, "schedule=1f1b")
            for label, data, tensor, stages in shapes]
    rows.append(bench.make("found by the search", "search", GPT, "--runnable"))
    rows = bench.measure(rows)
    fastest = [min(rows, key=lambda row: step_s(row)[way]).label for way in (0, 1, 2)]
    return ["Theirs: throughput of GPT-2 beside Megatron-LM by pure data, pure tensor, data with tensor, and data with "
            "tensor and pipeline parallelism (1F1B): OneFlow is ahead in all, by fused kernels. Ours: the same four kinds of "
            "plans of the GPT above on 8 ranks, and the one that the search finds:", table(rows),
            f"{proof(rows[-1].plan()['search'])} "
            f"The shortest step: by prediction {fastest[0]}, as measured {fastest[1]}, replayed {fastest[2]}. No second "
            "framework runs here to compare kernels with.",
            "Why they differ: theirs sets two implementations of each split side by side, ours has the same "
            "kernels in all rows, and the split alone counts. Which one is shortest hangs on the model and the "
            "batch, which are small here: pipelines have bubbles of a quarter to three eighths, as 16 sequences "
            "make few micro-batches, and their shards are small. The found plan exceeds its price by more than "
            "the others. A part of it is that it packs more into messages, which a virtual device does at its own "
            "speed and prices take no time for; the rest was not found."]


def proof(search):
    """What a search proves of its plan."""
    says = f"The search says `{search['status']}`: "
    if search["status"] == "optimal":
        return says + "no plan that runs costs less by the prices."
    bound_s = search.get("lower_bound_s", 0)
    if not bound_s > 0:
        return says + "others may cost less by the prices, no bound was proved."
    return says + f"its plan costs at most {page.percent(search['objective_s'] / bound_s - 1)} more than the cheapest."


FIGURES = [("9", "data pipeline", figure_9), ("10", "data parallelism", figure_10),
           ("11 and 12", "classes split", figure_12), ("13", "tables split", figure_13),
           ("14 and 15", "sharded optimizer", figure_15), ("16", "hybrid parallelism", figure_16)]


# --- the page ---


def shortest(commands):
    """The first command of each kind, which stands for the others of its figure."""
    first = {}
    for command in commands:
        first.setdefault(tuple(command.replace("(ulimit", "ulimit").split()[:2]), command)
    return "\n".join(first.values())


def wrapped(paragraph):
    return paragraph if paragraph.startswith("|") else textwrap.fill(paragraph, 116, break_on_hyphens=False)


def head(bench):
    version = output_of([bench.program, "--version"]).split()[1]
    return f"""# OneFlow's experiments, run

Measured once, by `./dev bench oneflow` of version {version} ({bench.calibrated()['cpu']}, {bench.cores()}
cores, with a load of {os.getloadavg()[1]:.0f} by all programs before the first figure). Section 6 of the paper,
small: its numbers are in pictures, which its text lacks, so that theirs are what the text says. Signatures and boxing
volumes are in [oneflow.md](oneflow.md).

Ranks are threads on CPUs, in single precision. Devices are virtual: a rank rests for {SLOWDOWN - 1} times what it
computed, so that ranks which share cores work side by side. `cluster.json` is of `sbplan calibrate -n {RANKS} --backend
threads --method paper --budget-s {bench.options.budget_s}`, on the machine that ran the rest.

| column | is |
| --- | --- |
| predicted | the price of the step |
| measured | wall time, the median of {bench.options.rounds} rounds in turns, with what ranks wait for cores that others use |
| replayed | what ranks computed, by their CPU time, on the predicted timeline |
| ratio | of the column before over predicted |
| samples/s | of the batch, by the measured time |
| MiB a rank | touched of its arena: what was predicted to the byte, or the run ends with an error |
| of the bound | of round-off, by `run --verify`: the largest difference of a gradient, loss or update to one device |

Strategy files in the commands (`vocab-125000.json`) are the plan before with the roles of one or two layers changed.
"""


def write(bench, out):
    parts = [head(bench)]
    for number, title, figure in FIGURES:
        bench.commands = []
        paragraphs = figure(bench)
        parts += [f"## Figure{'s' if ' ' in number else ''} {number}: {title}\n",
                  *(f"{wrapped(paragraph)}\n" for paragraph in paragraphs), f"```sh\n{shortest(bench.commands)}\n```\n"]
    (pathlib.Path(out) / "oneflow_run.md").write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--budget-s", default="30")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        bench.sbplan("calibrate", "-n", RANKS, "--backend", "threads", "--method", "paper", "--budget-s",
                     options.budget_s, "-o", bench.folder / "cluster.json")
        write(bench, options.out)


if __name__ == "__main__":
    try:
        main()
    except Refused as reason:
        sys.exit(f"oneflow: {reason}")
