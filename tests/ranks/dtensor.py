#!/usr/bin/env python3
"""Plans of one stage, exported to DTensor and trained by planner/export/dtensor_step.py on gloo ranks:
each step's loss, and the norm of its gradients, is that of `sbplan run` to round-off in fp32.

Skipped (77) without PyTorch, which PyPI has. DTENSOR_DRAWS random plans more (default 0);
DTENSOR_SEED of the first. Usage: dtensor.py SBPLAN ROOT
"""

import json
import os
import random
import subprocess
import sys

try:
    import torch.distributed.tensor  # noqa: F401
except ImportError as reason:
    print(f"skipped: {reason}; pip install torch brings it")
    sys.exit(77)

program, root = sys.argv[1:3]
sys.dont_write_bytecode = True
sys.path.insert(0, root + "/planner/export")
import dtensor_step  # noqa: E402

os.environ["SBPLAN_CONFIGS"] = root + "/configs"
STEPS = 3
TOLERANCE = 3e-6  # of a loss, and of a norm after as many steps of rounding apart
EIGHT = "--set cluster.levels[0].size=8 "
BLOCK = "--fix block0.{}={}"
CUBE = " ".join(
    BLOCK.format(layer, "batch:2,column:2,row:2") for layer in ("qkv", "projection", "up", "down")
)
CASES = [
    "search tiny-gpt laptop-4 --runnable",
    "price tiny-gpt laptop-4 --tp 4 --set clip_norm=0.5",
    "price tiny-gpt laptop-4 --tp 2 --cp 2 --sequence-parallel --micro-batch 2",
    "search tiny-gpt laptop-4 --runnable " + EIGHT + CUBE,
    "search tiny-gpt laptop-4 --runnable --set tied=false --fix block0.up=replicate:4 "
    "--fix block0.down=mirror:4 --fix head=row:4",
    "search tiny-mlp laptop-4 --runnable --fix fc1=row:4 --fix fc2=row:4 --fix fc3=column:4",
    "price sums.json laptop-4 --strategy strategy.json",
]
SUMS = {
    "name": "sums",
    "global_batch": 8,
    "clip_norm": 100,
    "layers": [
        {"op": "linear", "name": "a", "in": 16, "out": 32, "bias": True},
        {"op": "linear", "name": "b", "out": 24},
        {"op": "linear", "name": "c", "out": 8},
        {"op": "cross_entropy"},
    ],
}
STRATEGY = {
    "layers": [
        {"name": "a", "roles": {"row": 4}, "rest": "P"},
        {"name": "b", "roles": {"partial": 4}, "rest": "P"},
        {"name": "c", "roles": {"column": 4}},
    ]
}


def draw(number):
    """A search in which the roles of some layers are drawn."""
    chance = random.Random(number)
    words = ["search tiny-gpt laptop-4 --runnable --set clip_norm=1"]
    roles = {
        "embedding": ("batch", "sequence", "column", "vocab"),
        "block0.qkv": ("batch", "sequence", "column", "row"),
        "block0.attention": ("batch", "head", "context"),
        "block0.projection": ("batch", "sequence", "column", "row"),
        "block0.up": ("batch", "sequence", "column", "row", "replicate"),
        "block0.down": ("batch", "sequence", "column", "row"),
        "head": ("batch", "sequence", "column", "row"),
    }
    for layer in chance.sample(sorted(roles), 3):
        one, two = chance.sample(roles[layer], 2)
        whole = chance.random() < 0.3
        words.append(f"--fix {layer}=" + (f"{one}:4" if whole else f"{one}:2,{two}:2"))
    words.append(f"--set micro_batch={chance.choice((4, 8))} --set pipeline=1 --set tied=false")
    return " ".join(words)


def sbplan(words):
    return subprocess.run([program] + words.split(), capture_output=True, text=True, check=False)


def trained():
    """Losses and norms of gradients by sbplan run; a norm is None where the model clips by none."""
    done = sbplan(f"run plan.json --steps {STEPS} --json")
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return [(step["loss"], step["grad_norm"]) for step in json.loads(done.stdout)["steps"]]


def exported():
    done = sbplan("export plan.json --to dtensor -o dtensor.json")
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    with open("dtensor.json", encoding="utf-8") as file:
        plan = json.load(file)
    with open("out.txt", "w+", encoding="utf-8") as out:
        if not dtensor_step.run_ranks(plan, STEPS, 0, out):
            return []
        out.seek(0)
        return [tuple(map(float, line.split()[1:])) for line in out]


def is_near(one, two):
    return one is None or abs(one - two) <= TOLERANCE * abs(one)


def check(words):
    done = sbplan(words + " -o plan.json")
    if done.returncode != 0:
        print(f"no plan: {words}: {done.stdout}{done.stderr}")
        return None
    ours, theirs = trained(), exported()
    good = len(ours) == len(theirs) and all(
        is_near(a, b) and is_near(c, d) for (a, c), (b, d) in zip(ours, theirs)
    )
    print(f"{'ok' if good else 'FAILED'} {words}")
    if not good:
        print(f"  sbplan run {ours}\n  PyTorch    {theirs}")
    return good


def main():
    for name, content in (("sums.json", SUMS), ("strategy.json", STRATEGY)):
        with open(name, "w", encoding="utf-8") as file:
            json.dump(content, file)
    first = int(os.environ.get("DTENSOR_SEED", "1"))
    draws = int(os.environ.get("DTENSOR_DRAWS", "0"))
    fixed = [check(words) for words in CASES]
    drawn = [check(draw(first + number)) for number in range(draws)]
    failed = sum(result is not True for result in fixed) + drawn.count(False)
    print(f"{len(fixed) + len(drawn)} plans, {drawn.count(None)} of the drawn ones not legal, {failed} failed")
    return 1 if failed or 2 * drawn.count(None) > len(drawn) else 0


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        program = os.path.abspath(program)
        os.chdir(folder)
        status = main()
        os.chdir("/")
    sys.exit(status)
