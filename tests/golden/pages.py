#!/usr/bin/env python3
"""Pages of `sbplan report`: well-formed, nothing from outside, their numbers those of the plans, what
is hostile shown as text, no file too large. Usage: pages.py SBPLAN ROOT
"""

import html.parser
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

from checks import end, expect, near

program, root = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
os.environ["SBPLAN_CONFIGS"] = root + "/configs"
HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 1 << 20
ELEMENTS = {
    HTML + name
    for name in "html head meta title link style body a header h1 h2 h3 h4 p strong dl div dt dd small nav ul li"
    " main section table thead tbody tr th td figure figcaption i span b bdi data details summary code footer".split()
} | {SVG + name for name in "svg path title text".split()}
VOID = {"meta", "link"}
HOSTILE = "<script>alert('x')</script>&amp;\"><img src=x onerror=alert(1)> \u202eabc]]>"


def sbplan(*words, status=0):
    done = subprocess.run([program, *words], capture_output=True, text=True, errors="replace")
    if done.returncode != status:
        print(done.stdout[-2000:], done.stderr)
        sys.exit(f"sbplan {' '.join(words)}: exit status {done.returncode}")
    return done.stdout


def explain(plan):
    return json.loads(sbplan("explain", plan, "--json"))


# --- what every page is ---


class Tags(html.parser.HTMLParser):
    """Whether an HTML reader sees the same elements as an XML reader, each closed where it opens."""

    def __init__(self):
        super().__init__()
        self.open, self.bad = [], []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        if tag not in VOID | {"path"}:
            self.bad.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append(tag)


class Page:
    def __init__(self, path, most_bytes=MOST_BYTES):
        self.path = path
        with open(path, "rb") as file:
            self.bytes = file.read()
        self.tree = ET.fromstring(self.bytes)
        self.check(most_bytes)

    def check(self, most_bytes):
        expect(len(self.bytes) <= most_bytes, f"{self.path}: {len(self.bytes)} bytes, at most {most_bytes}")
        tags = Tags()
        tags.feed(self.bytes.decode())
        expect(not tags.bad and not tags.open, f"{self.path}: {tags.bad[:5]} {tags.open[:5]}")
        ids = []
        for element in self.tree.iter():
            expect(element.tag in ELEMENTS, f"{self.path}: an element {element.tag}")
            for key, value in element.attrib.items():
                expect(not key.startswith("on"), f"{self.path}: {key}={value}")
                if key in ("href", "src"):
                    expect(value[0] == "#" or value == "data:,", f"{self.path}: {key}={value}")
            if "id" in element.attrib:
                ids.append(element.attrib["id"])
            if element.tag == SVG + "svg":
                expect(element.get("role") == "img" and element.get("aria-label"), f"{self.path}: a silent figure")
        expect(len(ids) == len(set(ids)), f"{self.path}: an id twice")
        for link in self.tree.iter(HTML + "a"):
            expect(link.attrib["href"][1:] in ids, f"{self.path}: {link.attrib} leads nowhere")
        for axis in self.tree.iter(HTML + "div"):
            if axis.get("class") in ("axis", "axis mid", "ys"):
                ticks = [text_of(tick) for tick in axis]
                expect(len(ticks) == len(set(ticks)), f"{self.path}: a tick twice: {ticks}")
        wrong = re.findall(rb'="[^"]*(?<![a-z])-?(?:nan|inf)\b[^"]*"', self.bytes)
        expect(not wrong, f"{self.path}: not numbers: {wrong[:3]}")
        style = self.tree.find(f".//{HTML}style").text
        expect("url(" not in style and "@import" not in style, f"{self.path}: a style from outside")

    def section(self, name):
        return self.tree.find(f".//{HTML}section[@id='{name}']")


def text_of(element):
    return "".join(element.itertext())


def values(element):
    return [float(item.get("value")) for item in element.iter(HTML + "data")]


def rows(element, label):
    """Rows of a table by its label: lists of cells, a number where a cell holds one."""
    for region in element.iter(HTML + "div"):
        if region.get("aria-label") == label:
            return [
                [(values(cell) or [text_of(cell)])[0] for cell in row.iter(HTML + "td")]
                for row in region.find(f".//{HTML}tbody").iter(HTML + "tr")
            ]
    sys.exit(f"no table {label}")


# --- numbers of a plan ---


def check_time(page, said):
    section, cost = page.section("p1-time"), said["cost"]
    table = {row[0]: row[1] for row in rows(section, "Parts of a step")}
    near(table["step"], cost["step_s"], "step")
    near(table["exposed communication"], cost["exposed_communication_s"], "exposed")
    near(table.get("bubble", 0), cost["bubble_s"], "bubble")
    work = table["compute"] + table.get("recompute", 0) + table["optimizer"]
    near(work, cost["compute_s"], "arithmetic")
    near(work + table["exposed communication"] + table.get("bubble", 0), table["step"], "sum of the step")
    for cause, seconds in cost["communication_by_cause_s"].items():
        hidden = cost["hidden_communication_by_cause_s"].get(cause, 0)
        if cause in table:
            near(table[cause], seconds - hidden, cause, 1e-6)


def check_memory(page, said):
    table = rows(page.section("p1-memory"), "Memory and work by stage")
    expect(len(table) == min(len(said["stages"]), 32), "rows of stages")
    for row, index in zip(table, [int(row[0]) for row in table]):
        stage = said["stages"][index]
        near(row[7], stage["device_bytes"], "bytes of a stage")
        near(sum(row[1:6]), stage["device_bytes"], "parts of a stage's bytes")
        near(row[6], stage["host_bytes"], "bytes of a host")
        near(row[11], stage["bubble_s"], "bubble of a stage")


def check_groups(page, said):
    section, cost = page.section("p1-groups"), said["cost"]
    if cost["communication_s"] == 0:
        return
    for label, first in (("Communication by level of the network", 2), ("Communication by group of ranks", 2)):
        table = rows(section, label)
        near(sum(row[first] for row in table), cost["communication_s"], label + ", seconds", 1e-6)
        near(sum(row[first + 2] for row in table), cost["communication_bytes"], label + ", bytes", 1e-6)


def check_layers(page, said):
    found = {}
    for layer in page.section("p1-layers").iter(HTML + "details"):
        summary = layer.find(HTML + "summary")
        found[text_of(summary.find(f".//{HTML}bdi"))] = values(summary)
    stages = len(said["stages"])
    for layer in said["layers"]:
        name = layer["name"]
        if layer.get("follows") and layer["communication_s"] == 0:
            expect(name not in found, name + ": a row for a follower")
            continue
        near(found[name][0], layer["compute_s"] / stages, name + ", compute")
        near(found[name][1], layer["communication_s"] / stages, name + ", communication")


def widths(svg, colour):
    """Width that a colour covers in a row, as a share, and how many intervals."""
    total = count = 0
    for path in svg.iter(SVG + "path"):
        if path.get("class") == colour:
            for left, right in re.findall(r"M(\d+) 0H(\d+)V", path.get("d")):
                total += int(right) - int(left)
                count += 1
    return (total + 3 * count) / 4000, count


def check_timeline(page, plan, scratch):
    """The first stage's passes are those that --trace writes."""
    trace = os.path.join(scratch, "trace.json")
    sbplan("explain", plan, "--trace", trace)
    with open(trace) as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    end = max(event["ts"] + event["dur"] for event in events)
    track = next(svg for svg in page.section("p1-timeline").iter(SVG + "svg") if svg.get("class") == "track")
    for name, colour in (("forward", "c1"), ("backward", "c6")):
        works = [e for e in events if e["pid"] == 1 and re.fullmatch(name + r"( \[\d+\])?", e["name"])]
        share, count = widths(track, colour)
        expect(count == len(works), f"{plan}: {count} {name} passes of {len(works)}")
        near(share, sum(work["dur"] for work in works) / end, f"{plan}: {name}", 0.02)


def check_plan(page, plan):
    said = explain(plan)
    tiles = page.tree.find(f".//{HTML}dl")
    near(values(tiles)[0], said["cost"]["step_s"], "the step on top")
    for what, value in (("MFU", said["cost"]["mfu"]), ("memory", said["memory"]["device_bytes"])):
        near(min(values(tiles), key=lambda shown: abs(shown - value)), value, what + " on top")
    limit = said["search"].get("memory_limit_bytes", said["memory"]["available_bytes"])
    expect(limit in values(tiles), "the limit of memory on top")
    check_time(page, said)
    check_memory(page, said)
    check_groups(page, said)
    check_layers(page, said)
    origin = text_of(page.section("p1-origin"))
    with open(plan) as file:
        whole = json.load(file)
    for word in (whole["model_hash"], whole["cluster_hash"], whole["search"]["command"]):
        expect(word in origin, f"{plan}: no {word} among its origin")


PLANS = {
    "limited": "search tiny-mlp laptop-4 --memory-limit 70000",
    "single": "search tiny-mlp laptop-4",
    "stages": "search tiny-gpt laptop-4 --runnable --set pipeline=2 --set micro_batch=2 --set schedule=1f1b",
    "replicas": "search tiny-gpt laptop-4 --set pipeline=4 --set chunks=4 --set schedule=cdp-v2"
    " --set tied=false --set layers=4 --set allow_delayed_gradients=true",
    "degrees": "price llama-3.1-8b dgx-h100-8x8 --tp 2 --pp 4 --vpp 2 --micro-batch 1 --recompute full"
    " --set schedule=interleaved --set global_batch=512",
    "offload": "price gpt3-175b dgx-a100-8x8 --tp 8 --pp 8 --set offload=true --set zero=1 --recompute full",
    "many": "price llama-2-7b flat-4096 --tp 8 --pp 32 --set global_batch=65536",
}


def check_plans(scratch):
    for name, words in PLANS.items():
        plan, page = os.path.join(scratch, name + ".json"), os.path.join(scratch, name + ".html")
        sbplan(*words.split(), "-o", plan)
        sbplan("report", plan, "-o", page)
        check_plan(Page(page), plan)
        with open(page, "rb") as file:
            before = file.read()
        sbplan("report", plan, "-o", page)
        with open(page, "rb") as file:
            expect(before == file.read(), name + ": the same plan makes another page")
    for name in ("single", "stages"):
        plan = os.path.join(scratch, name + ".json")
        check_timeline(Page(os.path.join(scratch, name + ".html")), plan, scratch)


# --- several files ---

RUN = {
    "plan": "stages.json", "model": "tiny-gpt", "ranks": 4, "ranks_per_host": 4, "cores": 2,
    "backend": "threads", "device": "cpu", "dtype": "f32", "seed": 7, "wall_is_parallel": False,
    "steps": [
        {"loss": 5.5, "grad_norm": None, "compute_s": 0.003, "replay_s": 0.005, "wall_s": 0.025},
        {"loss": 5.25, "grad_norm": None, "compute_s": 0.001, "replay_s": 0.002, "wall_s": 0.02},
        {"loss": 5.0, "grad_norm": None, "compute_s": 0.002, "replay_s": 0.004, "wall_s": 0.09},
    ],
    "predicted": {"step_s": 0.00207, "compute_s": 0.0018, "communication_s": 0.00015},
    "arena_bytes": 1000, "high_water_bytes": 900, "verification": {"status": "passed"},
}  # fmt: skip


def write(scratch, name, value):
    path = os.path.join(scratch, name)
    with open(path, "w") as file:
        json.dump(value, file)
    return path


def check_several(scratch):
    plans = [os.path.join(scratch, name + ".json") for name in ("stages", "replicas")]
    run = write(scratch, "run.json", RUN)
    sweep = os.path.join(scratch, "sweep.json")
    with open(sweep, "w") as file:
        file.write(sbplan(*"search tiny-gpt laptop-4 --sweep sequence=16,32 --sweep global_batch=4,8 --json".split()))
    out = os.path.join(scratch, "several.html")
    sbplan("report", *plans, sweep, run, "-o", out)
    page = Page(out)
    for row, plan in zip(rows(page.section("beside"), "Plans beside each other"), plans):
        near(row[1], explain(plan)["cost"]["step_s"], "step of a plan beside")
    with open(sweep) as file:
        swept = json.load(file)["rows"]
    table = rows(page.section("sweep-1"), "Rows of the sweep")
    expect(len(table) == len(swept) == 4, "rows of a sweep")
    for row, said in zip(table, swept):
        near(row[1], said["cost"]["step_s"], "step of a sweep")
        near(row[3], said["memory"]["device_bytes"], "bytes of a sweep")
    plot = page.section("sweep-1").find(f".//{HTML}figure")
    expect(len(list(plot.iter(SVG + "path"))) == 1 + 2 * 2, "two curves with dots")
    table = {row[0]: row[1:] for row in rows(page.section("run-1"), "Predicted beside measured")}
    expect(table["step, replay"] == [0.00207, 0.004, "1.93"], f"medians of a run: {table}")
    expect(table["memory of the arena"] == [1000, 900, "0.90"], "memory of a run")


# --- what is hostile ---


def check_hostile(scratch):
    with open(root + "/configs/clusters/laptop-4.json") as file:
        cluster = json.load(file)
    cluster["name"] = HOSTILE[:40]
    cluster["levels"][0]["name"] = "<b>&'\""
    cluster["source"] = {"levels": HOSTILE, "device": "\u0001\u009b31m\ufffe"}
    with open(root + "/tests/golden/data/two-linears.json") as file:
        model = json.load(file)
    model["name"] = HOSTILE[:60]
    for index, layer in enumerate(model["layers"]):
        layer["name"] = f"{index}</bdi><script>{index}"
    plan = os.path.join(scratch, "<plan>&'.json")
    out = os.path.join(scratch, "hostile.html")
    sbplan("search", write(scratch, "m.json", model), write(scratch, "c.json", cluster), "-o", plan)
    run = write(scratch, "<i>run.json", {**RUN, "model": model["name"], "backend": HOSTILE})
    small = {"cost": {"step_s": 1e-9, "tokens_per_s": 0.012, "mfu": 0.00011}, "memory": {"device_bytes": 7}}
    row = {"values": {HOSTILE: HOSTILE}, "status": HOSTILE, "plan": HOSTILE, **small}
    sweep = write(scratch, "<i>sweep.json", {"command": HOSTILE, "rows": [row, row]})
    sbplan("report", plan, plan, run, sweep, "-o", out)
    page = Page(out)
    expect(b"<script" not in page.bytes and b"onerror=alert(1)>" not in page.bytes, "a name became an element")
    shown = text_of(page.tree)
    for text in (model["name"], "0</bdi><script>0", cluster["name"], "<plan>&'.json", "\\x01\\xc2\\x9b31m\ufffd"):
        expect(text in shown, f"{text!r} is not shown")
    expect(shown.count(HOSTILE) >= 5, "hostile texts are not shown whole")


def mutate(value, draw):
    """One place of a tree changed: another type, a number of another size, a member left out."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(sorted(value))
        if draw.random() < 0.2:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: mutate(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return value[:at] + [mutate(value[at], draw)] + value[at + 1 :]
    return draw.choice([None, -1, 0, 1e300, "x", [], {}, True, [1], {"x": 1}])


def check_mutations(scratch):
    seed = int(os.environ.get("PAGES_SEED", "1"))
    draw = random.Random(seed)
    plan, out = os.path.join(scratch, "stages.json"), os.path.join(scratch, "mutated.html")
    with open(os.path.join(scratch, "sweep.json")) as file:
        sweep = json.load(file)
    for index in range(int(os.environ.get("PAGES_DRAWS", "60"))):
        path = write(scratch, "mutated.json", mutate(draw.choice([RUN, sweep]), draw))
        done = subprocess.run([program, "report", plan, path, "-o", out], capture_output=True, text=True)
        expect(done.returncode in (0, 2), f"seed {seed}, draw {index}: exit status {done.returncode}")
        if done.returncode == 0:
            Page(out)
        else:
            expect("mutated.json" in done.stderr, f"seed {seed}, draw {index}: {done.stderr}")


with tempfile.TemporaryDirectory() as folder:
    check_plans(folder)
    check_several(folder)
    check_hostile(folder)
    check_mutations(folder)
end(f"{len(PLANS)} plans")
