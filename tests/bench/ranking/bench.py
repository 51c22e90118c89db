#!/usr/bin/env python3
"""Strategies of four models, predicted and run on virtual clusters: ranking.md, .csv and .svg.

Hosts are network namespaces with shaped links (tests/ranks/virtual_cluster.sh), devices are virtual,
too: each rank rests after it has computed (`slowdown` of a cluster file), so that ranks which share
cores compute side by side and the wall time of a step is that of a parallel machine. A cluster is
calibrated first; strategies of a model then take turns.

usage: bench.py BUILD OUT [options]; exit status 77 where no virtual cluster can be made
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import page
import strategies

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIP = 77
# Ranks go ahead of other programs of this machine, where that is allowed: those that wait sleep, so
# that these and the kernel's own threads find the cores free often enough.
AHEAD = ["chrt", "--rr", "10"]


class Refused(Exception):
    """A program said no; the text is its reason."""


def call(words, what):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    if done.returncode == SKIP:
        sys.stdout.write(done.stdout)
        sys.exit(SKIP)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["nothing said"]
        raise Refused(f"{what}: {said[0]}")
    return done.stdout


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = pathlib.Path(folder)
        build = pathlib.Path(options.build).resolve()
        self.sbplan = build / "planner/sbplan"
        self.run = build / "executor/sbplan-run"
        self.calibrate_program = build / "calib/sbplan-calibrate"
        self.ahead = AHEAD if subprocess.run([*AHEAD, "true"], check=False).returncode == 0 else []
        self.rest = build / "tests/ranks/rest_when_idle.so"
        if not self.rest.exists():
            raise Refused(f"{self.rest}: not built, ranks that wait would take the cores of others")

    def on_cluster(self, cluster, words, what):
        of = strategies.CLUSTERS[cluster]
        return call([ROOT / "tests/ranks/virtual_cluster.sh", of["hosts"], of["ranks"],
                     f"{of['mbit']}mbit", "mpirun", *self.ahead, "env", f"LD_PRELOAD={self.rest}", *words], what)

    def write(self, name, value):
        path = self.folder / name
        path.write_text(json.dumps(value))
        return path

    def calibrate(self, cluster):
        """The file of a cluster, as measured, its devices made virtual."""
        path = self.folder / f"virtual-{cluster}.json"
        if not path.exists():
            self.on_cluster(cluster, [self.calibrate_program, "-o", path, "--budget-s",
                                      self.options.budget_s, "--runs", 1, "--max-bytes", "2M",
                                      "--seed", self.options.seed],
                            f"calibrating {cluster}")
        value = json.loads(path.read_text())
        value["device"]["slowdown"] = self.options.slowdown
        return self.write(f"cluster-{cluster}.json", value)

    def plans(self, model, cluster, files):
        """Of each strategy a plan, in order: {label: path}; and {label: why there is none}."""
        made, refused = {}, {}
        ways = {label: ["search", *files, "--space", space, "--runnable"]
                for label, space in strategies.BASELINES.items()}
        if model == "vgg-dense":
            for i, (label, splits) in enumerate(strategies.dense_splits(cluster).items()):
                ways[label] = ["price", *files, "--strategy", self.write(f"splits-{i}.json", splits)]
        else:
            batch = strategies.MODELS[model]["global_batch"]
            for label, words in strategies.transformer_degrees(batch).items():
                ways[label] = ["price", *files, *words]
        for i, (label, words) in enumerate(ways.items()):
            path = self.folder / f"{model}-{i}.json"
            try:
                call([self.sbplan, *words, "-o", path], label)
                made[label] = path
            except Refused as reason:
                refused[label] = str(reason).split(": ", 1)[1]
        return made, refused

    def measure(self, cluster, paths):
        """What `sbplan bench` says of plans, by their paths."""
        words = [self.run, "--bench", *paths, "--rounds", self.options.rounds, "--steps",
                 self.options.steps, "--warmup", "1", "--seed", self.options.seed, "--json"]
        said = json.loads(self.on_cluster(cluster, words, "bench"))
        self.write(f"{said['model']}-bench.json", said)
        return {pathlib.Path(plan["file"]): plan for plan in said["plans"]}

    def group(self, model, cluster):
        """A model's strategies on a cluster, predicted and measured."""
        files = [self.write(f"{model}.json", dict(strategies.MODELS[model], name=model)),
                 self.calibrate(cluster)]
        made, refused = self.plans(model, cluster, files)
        alone = page.merge_alike(made, lambda path: json.loads(path.read_text()))
        measured = self.measure(cluster, [path for path, _ in alone])
        rows = [page.row_of(labels, measured[path], self.layout(path)) for path, labels in alone]
        return page.Group(model, cluster, rows, refused)

    def layout(self, path):
        """The line `layout` of a plan, without its batch, which is the same in words of others."""
        for line in call([self.sbplan, "explain", path], "explain").splitlines():
            if line.startswith("layout"):
                return line.split(maxsplit=1)[1]
        raise Refused(f"{path}: no layout")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("out")
    parser.add_argument("--models", help="these alone, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="of a round that count")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slowdown", type=float, default=8.0, help="of a virtual device")
    parser.add_argument("--budget-s", type=int, default=130, help="of a calibration")
    parser.add_argument("--folder", help="keeps calibrations and plans, and takes calibrations of it")
    return parser.parse_args()


def main():
    options = read_options()
    started = time.monotonic()
    wanted = options.models.split(",") if options.models else list(strategies.MODELS)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, options.folder or scratch)
        groups = []
        for cluster, models in strategies.MODEL_OF_CLUSTER.items():
            for model in models:
                if model in wanted:
                    print(f"{model} on {cluster}", flush=True)
                    groups.append(bench.group(model, cluster))
                    print(page.table(groups[-1]), flush=True)
    commit = call(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], "git").strip()
    version = call([bench.sbplan, "--version"], "version").strip()
    page.write(pathlib.Path(options.out), groups, options, commit, version,
               time.monotonic() - started)
    print(page.quality(groups))


if __name__ == "__main__":
    try:
        main()
    except Refused as reason:
        sys.exit(f"ranking: {reason}")
