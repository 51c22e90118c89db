#!/usr/bin/env python3
"""Answers of `sbplan advise`: every command that it names runs and says the same; what 1 % more of a
constant saves is what the same plan saves, priced with 1 % more. Usage: advise.py SBPLAN ROOT
"""

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile

from checks import end, expect, near

program, root = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
os.environ["SBPLAN_CONFIGS"] = root + "/configs"
UNHURRIED = ("--time-limit", "none")
SMALL = ("--quick", "--set", "cluster.levels[0].size=2", "--set", "cluster.levels[1].size=2")
MACHINES = [
    ("tiny-gpt", "laptop-4", "--tokens", "3e9"),
    ("tiny-gpt", "laptop-4", "--set", "global_batch_tokens=128", "--set", "pipeline=2"),
    ("tiny-mlp", "summit-v100", "--tokens", "3e9", *SMALL, "--set", "cluster.levels[2].size=2"),
    ("tiny-mlp", "polaris", *SMALL),
]


def sbplan(words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sbplan {shlex.join(words)}: exit status {done.returncode}: {done.stderr}")
    return done.stdout


def said_by(command, *more):
    words = shlex.split(command)
    expect(words[0] == "sbplan", command)
    out = sbplan(words[1:] + list(more))
    return json.loads(out) if "--json" in more else out


def check_sweep(sweep, command):
    rows = said_by(command, "--json")["rows"]
    legal = [row for row in sweep["rows"] if row["status"] != "refused"]
    expect(len(rows) == len(legal), f"{command}: {len(rows)} rows")
    for row, said in zip(legal, rows):
        near(float(said["values"][sweep["key"]]), row["value"], sweep["key"])
        if row["status"] == "optimal":
            near(row["step_s"], said["cost"]["step_s"], f"{command}, {row['value']}")
            near(row["tokens_per_s"], said["cost"]["tokens_per_s"], command)


def pays(sweep):
    """The largest size at which a device has 0.9 of its best rate."""
    rates = {row["value"]: row["tokens_per_s"] / row["devices"] for row in sweep["rows"] if "step_s" in row}
    return max(size for size, rate in rates.items() if rate >= 0.9 * max(rates.values()))


def check_saved(advice, machine):
    """Plans of links are priced by key; those of measured groups have none."""
    words = [word for word in machine[2:] if word not in ("--quick", "--tokens", "3e9", *UNHURRIED)]
    with open("plan.json") as file:
        cluster = json.load(file)["cluster"]
    keys = {f"{level['name']} links": (f"cluster.levels[{i}].beta_s_per_byte", level["beta_s_per_byte"], -1)
            for i, level in enumerate(cluster["levels"]) if "network" not in cluster}
    keys["arithmetic"] = ("cluster.device.flops.fp32", cluster["device"]["flops"]["fp32"], 1)
    keys["memory bandwidth"] = ("cluster.device.memory_bytes_per_s", cluster["device"]["memory_bytes_per_s"], 1)
    saved = {item["of"]: item["percent"] for item in advice["saved_by_1_percent"]}
    expect(set(keys) < set(saved), f"{machine}: {saved}")
    step_s, rate = advice["cost"]["step_s"], advice["cost"]["tokens_per_s"]
    for sweep in advice["sweeps"]:
        twice = sweep["rows"][-1]
        name = {"cluster.device.memory_bytes": "memory", "global_batch": "batch", "global_batch_tokens": "batch"}
        if sweep["key"] in name and "step_s" in twice:
            near(saved[name[sweep["key"]]], math.log2(twice["tokens_per_s"] / rate), sweep["key"], 1e-6)
    for name, (key, value, sign) in keys.items():
        faster = said_by(shlex.join(["sbplan", "price", machine[0], machine[1], *words, "--strategy", "plan.json",
                                     "--set", f"{key}={value * 1.01**sign:.17g}"]), "--json")
        share = math.log(step_s / faster["cost"]["step_s"]) / math.log(1.01)
        expect(abs(share - saved[name]) < 0.01, f"{machine}, {name}: {share} beside {saved[name]}")


def check(machine):
    machine = (*machine, *UNHURRIED)
    advice = json.loads(sbplan(["advise", *machine, "--json"]))
    answers = {answer["of"]: answer for answer in advice["answers"]}
    commands = [answer["command"] for answer in advice["answers"]]
    if machine[: -len(UNHURRIED)] == MACHINES[0]:
        lines = [line.strip() for line in sbplan(["advise", *machine]).splitlines()]
        expect([line[2:] for line in lines if line.startswith("$ ")] == commands, f"{machine}: other commands")
    expect(8 <= len(commands) <= 11, f"{machine}: {len(commands)} answers")
    for command in commands:
        if "--sweep" not in command:
            said_by(command)
    for sweep in advice["sweeps"]:
        of_it = [command for command in commands if sweep["key"] + "=" in command.partition("--sweep")[2]]
        expect(len(of_it) == 1, f"{machine}, {sweep['key']}: {of_it}")
        check_sweep(sweep, of_it[0])
    largest = pays(advice["sweeps"][0])
    nodes = next(answer["text"] for answer in advice["answers"] if " pay" in answer["text"])
    expect(nodes.split()[0] == f"{largest:.0f}", f"{machine}: {nodes}, {largest}")
    if "training" in answers:
        said = said_by(answers["training"]["command"], "--json")["training"]
        near(said["days"], advice["training"]["days"], "days")
        near(said["tokens"], 3e9 if "3e9" in machine else 20 * advice["model"]["parameters"], "tokens")
    check_saved(advice, machine)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for one in MACHINES:
        check(one)
end(f"{len(MACHINES)} machines")
