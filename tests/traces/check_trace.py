#!/usr/bin/env python3
"""Checks timelines in the Trace Event Format, as Perfetto reads them; shares nothing with sbplan.

Every event is whole, every lane has its name, intervals of a lane follow each other or lie within
each other to the nanosecond, counters never fall below 0 and no micro-batch stays in flight. All
processes of a stage (predicted, replayed, measured) have the same lanes with the same names in them,
equally often, and the same counters, but under message-driven: there arrivals decide how many
micro-batches a stage holds.

usage: check_trace.py [--plan EXPLAINED.json] TRACE...
With --plan, the output of `sbplan explain --json`: the most micro-batches in flight, and the most
memory, of a stage's prediction are those of the plan (under message-driven: no more).
"""
import collections
import decimal
import json
import re
import sys


class Bad(Exception):
    pass


def need(holds, text):
    if not holds:
        raise Bad(text)


def nanoseconds(event, key):
    value = decimal.Decimal(event[key]) * 1000
    need(value == value.to_integral_value() and value >= 0, f"{key} of {event}")
    return int(value)


class Process:
    def __init__(self):
        self.name = None
        self.lane_names = {}
        self.intervals = collections.defaultdict(list)  # by lane: (begin, end, name)
        self.counters = collections.defaultdict(list)  # by name: (at, value)

    def stage(self):
        found = re.search(r"stage (\d+)$", self.name)
        return int(found.group(1)) if found else 0

    def contents(self):
        return {
            self.lane_names[lane]: collections.Counter(name for _, _, name in intervals)
            for lane, intervals in self.intervals.items()
        }

    def most(self, counter):
        return max(value for _, value in self.counters[counter])


def read(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file, parse_float=decimal.Decimal, parse_int=decimal.Decimal)
    processes = collections.defaultdict(Process)
    for event in trace["traceEvents"]:
        need({"name", "ph", "pid", "tid"} <= event.keys(), f"an event lacks a key: {event}")
        need(event["name"] != "", f"an event has no name: {event}")
        process, lane = processes[int(event["pid"])], int(event["tid"])
        if event["ph"] == "M" and event["name"] == "process_name":
            need(process.name is None, f"two names of a process: {event}")
            process.name = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            need(lane not in process.lane_names, f"two names of a lane: {event}")
            process.lane_names[lane] = event["args"]["name"]
        elif event["ph"] == "M":
            need(event["name"] in ("process_sort_index", "thread_sort_index"), f"{event}")
        elif event["ph"] == "X":
            begin = nanoseconds(event, "ts")
            process.intervals[lane].append((begin, begin + nanoseconds(event, "dur"), event["name"]))
        else:
            need(event["ph"] == "C" and len(event["args"]) == 1, f"a strange event: {event}")
            (value,) = event["args"].values()
            process.counters[event["name"]].append((nanoseconds(event, "ts"), int(value)))
    return processes


def check_lane(process, lane, intervals):
    need(lane in process.lane_names, f"{process.name}: lane {lane} has no name")
    around = []  # ends of the intervals that the next one may lie in
    for begin, end, name in sorted(intervals, key=lambda i: (i[0], -i[1])):
        while around and around[-1] <= begin:
            around.pop()
        need(not around or end <= around[-1], f"{process.name}: {name} at {begin} ns crosses another")
        if end > begin:
            around.append(end)


def check_process(process):
    need(process.name is not None, "a process has no name")
    need(process.intervals, f"{process.name}: nothing happens")
    names = list(process.lane_names.values())
    need(len(set(names)) == len(names), f"{process.name}: two lanes of one name")
    for lane, intervals in process.intervals.items():
        check_lane(process, lane, intervals)
    for counter, samples in process.counters.items():
        need(all(value >= 0 for _, value in samples), f"{process.name}: {counter} falls below 0")
    in_flight = process.counters["micro-batches in flight"]
    need(in_flight and in_flight[-1][1] == 0, f"{process.name}: micro-batches stay in flight")


def check_alike(processes, driven):
    first = {}
    for process in processes:
        other = first.setdefault(process.stage(), process)
        need(process.contents() == other.contents(), f"{process.name} differs from {other.name}")
        for counter in () if driven else other.counters:
            need(process.most(counter) == other.most(counter),
                 f"{counter} of {process.name} differs from {other.name}")


def check_plan(processes, plan, driven):
    # Frames of several chunks, or of several parts, leave gaps between them.
    gaps = plan["parallel"]["schedule"] in ("interleaved", "zero-bubble")
    for process in processes:
        stage = plan["stages"][process.stage()]
        for counter, key in (("micro-batches in flight", "in_flight"), ("memory", "device_bytes")):
            most = process.most(counter)
            least = 0.9 * stage[key] if gaps and counter == "memory" else stage[key]
            least = 0 if driven else least
            need(least <= most <= stage[key],
                 f"{process.name}: {counter} {most}, the plan says {stage[key]}")


def check(path, plan):
    processes = read(path)
    need(processes, "no events")
    for process in processes.values():
        check_process(process)
    driven = plan is not None and plan["parallel"]["schedule"] == "message-driven"
    check_alike(processes.values(), driven)
    if plan is not None:
        check_plan([p for p in processes.values() if driven or p.name.startswith("predicted")],
                   plan, driven)
    for process in processes.values():
        lanes = ", ".join(f"{process.lane_names[lane]} {len(process.intervals[lane])}"
                          for lane in sorted(process.intervals))
        print(f"{process.name}: {lanes}; in flight {process.most('micro-batches in flight')}")


def main(words):
    plan = None
    if words[:1] == ["--plan"]:
        with open(words[1], encoding="utf-8") as file:
            plan = json.load(file)
        words = words[2:]
    need(words, __doc__)
    for path in words:
        try:
            check(path, plan)
        except (Bad, KeyError, ValueError) as error:
            print(f"{path}: {error!r}", file=sys.stderr)
            return 1
    return 0


sys.exit(main(sys.argv[1:]))
