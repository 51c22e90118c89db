#!/usr/bin/env python3
"""The demo: calibrates this machine, finds a plan, measures it beside data parallelism and Megatron.

What the commands print goes to files of OUT. Last come the gain, the proof, and what was measured
beside what was predicted.

usage: demo.py SBPLAN OUT [--model NAME] [--layers N] [--budget-s S] [--rounds N]
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys

SPACES = {"data": ("data-parallel", "data parallelism"), "megatron": ("megatron", "Megatron"),
          "found": ("full", "found plan")}
# Plans whose predicted steps differ by less are not told apart by a measurement of a minute.
APART = 0.01
# A step that takes so many times what its ranks computed and sent waited for other programs.
DISTURBED = 1.25
# How a search says that it has no plan, with a proof or without.
NO_PLAN = "^(infeasible|no ).*"


def ranks():
    """A power of two, which divides batches and sequences: one rank a core, but two at least, eight at most."""
    cores = len(os.sched_getaffinity(0))
    return max(2, min(8, 2 ** int(math.log2(cores))))


class Demo:
    def __init__(self, options):
        self.options = options
        self.out = pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)

    def sbplan(self, name, words, legal=(0,)):
        """Shows the command and keeps what it prints in the file NAME."""
        words = [str(word) for word in (self.options.sbplan, *words)]
        print("$", *words, ">", self.out / name, flush=True)
        with open(self.out / name, "w", encoding="utf-8") as file:
            status = subprocess.run(words, stdout=file, check=False).returncode
        if status not in legal:
            sys.stdout.write((self.out / name).read_text())
            sys.exit(status)
        return status == 0

    def search(self, plan, ranks_used):
        """The best plan of a space; None where none fits the memory of a rank."""
        space, _ = SPACES[plan]
        file = self.out / f"{plan}.json"
        fits = self.sbplan(f"{plan}.txt", ["search", self.options.model, self.out / "cluster.json", "--runnable",
                                           "--space", space, "--set", f"layers={self.options.layers}",
                                           "--set", "sequence=64", "--set", f"global_batch={2 * ranks_used}",
                                           "-o", file], legal=(0, 1))
        return json.loads(file.read_text()) if fits else None

    def measure(self, plans):
        """What `sbplan bench` measured and predicted of each plan, all in turns."""
        self.sbplan("bench.json", ["bench", *(self.out / f"{plan}.json" for plan in plans), "--rounds",
                                   self.options.rounds, "--steps", 1, "--json"])
        answer = json.loads((self.out / "bench.json").read_text())
        return dict(zip(plans, answer["plans"]))

    def said(self, name, pattern):
        """What a command printed into the file NAME that matches; where nothing does, the file ends the demo."""
        text = (self.out / name).read_text()
        match = re.search(pattern, text, re.MULTILINE)
        return match.group() if match else sys.exit(text)

    def play(self):
        count = ranks()
        self.sbplan("calibrate.txt", ["calibrate", "-n", count, "--backend", "threads", "--fresh", "--budget-s",
                                      self.options.budget_s, "-o", self.out / "cluster.json"])
        plans = {plan: self.search(plan, count) for plan in SPACES}
        if not plans["found"]:
            sys.exit(self.said("found.txt", NO_PLAN))
        rows = self.measure(told_apart(plans))
        self.sbplan("run.txt", ["run", self.out / "found.json", "--steps", 1, "--verify", "--trace",
                                self.out / "trace.json"])
        print("", *story(plans, rows, counted((self.out / "found.txt").read_text())), sep="\n")
        print(self.said("run.txt", "^verified: .*").replace(": ", "   ", 1))
        print(f"timeline   {self.out}/trace.json, predicted and measured: open it in ui.perfetto.dev")


def counted(text):
    """The strategies of a search, which it does not always count."""
    match = re.search("10\\^[.0-9]+ strategies|1 strategy", text)
    return match.group() if match else "its strategies"


def told_apart(plans):
    """The plans to measure: the found one, and those that fit and do not cost the same."""
    found = plans["found"]["cost"]["step_s"]
    return [plan for plan, value in plans.items()
            if value and (plan == "found" or abs(value["cost"]["step_s"] / found - 1) >= APART)]


def undisturbed(rows):
    """Whether every rank had a core to itself for most of the time, so that the clock tells the step."""
    return all(row["wall_is_parallel"] and
               row["measured"]["wall_s"]["median"] < DISTURBED * row["measured"]["replay_s"]["median"]
               for row in rows.values())


def gain(plans, rows):
    """A line for each other plan: how much longer its steps take, or why it was not measured."""
    found = plans["found"]["cost"]["step_s"]
    clock = "wall_s" if undisturbed(rows) else "replay_s"
    for plan in ("data", "megatron"):
        name = SPACES[plan][1]
        if not plans[plan]:
            yield f"{name}: no plan was found that fits the memory of a rank"
            continue
        predicted = plans[plan]["cost"]["step_s"] / found
        if plan not in rows:
            more = "more" if predicted >= 1 else "less"
            yield f"{name} costs {100 * abs(predicted - 1):.2g} % {more} by prediction: too little to measure"
            continue
        times = [rows[name]["measured"][clock]["median"] for name in (plan, "found")]
        yield f"{times[0] / times[1]:.2f} times as fast as {name}, predicted {predicted:.2f} times"


def proof(search, strategies):
    if search["status"] == "optimal":
        return f"optimal: of {strategies} none costs less, by the cost model of these ranks"
    bound_s = search.get("lower_bound_s", 0)
    if not bound_s > 0:
        return f"no bound was proved: how far the plan is from the best of {strategies} is not known"
    gap = 100 * (search["objective_s"] / bound_s - 1)
    return f"at most {gap:.2g} % above the best of {strategies}, by the cost model of these ranks"


def milliseconds(seconds):
    return f"{1e3 * seconds:.4g} ms" if seconds < 9.9 else f"{1e3 * seconds:.0f} ms"


def table(rows):
    yield ["plan", "predicted", "measured", "ratio", "compute predicted", "measured", "ratio", "memory a rank"]
    for plan, row in rows.items():
        cells = [SPACES[plan][1]]
        for key in ("wall_s", "compute_s"):
            predicted, measured = row["predicted"][key], row["measured"][key]["median"]
            cells += [milliseconds(predicted), milliseconds(measured), f"{measured / predicted:.2f}"]
        yield [*cells, f"{row['measured']['arena_bytes'] / 2**20:.0f} MiB"]


def aligned(lines):
    lines = list(lines)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        yield "  ".join([line[0].ljust(widths[0]), *cells])


def story(plans, rows, strategies):
    for label, line in zip(("gain", ""), gain(plans, rows)):
        yield f"{label:<11}{line}"
    yield f"proof      {proof(plans['found']['search'], strategies)}"
    yield from ("", *aligned(table(rows)), "")
    if not undisturbed(rows):
        yield "note       ranks waited for cores: a measured step holds that, compute does not; the gain is that of"
        yield "           measured compute with predicted communication"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("sbplan")
    parser.add_argument("out")
    parser.add_argument("--model", default="gpt2-small")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--budget-s", default="15")
    parser.add_argument("--rounds", type=int, default=8)
    Demo(parser.parse_args()).play()


if __name__ == "__main__":
    main()
