#!/usr/bin/env python3
"""Execution traces of sbplan export, read by Chakra's own reader (mlc-chakra of PyPI): they hold
together over all ranks, and played they take the step that the export says.

Skipped (77) without the reader. Usage: chakra_traces.py SBPLAN ROOT
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    from chakra.schema.protobuf.et_def_pb2 import (
        COMM_COLL_NODE,
        COMM_RECV_NODE,
        COMM_SEND_NODE,
        GlobalMetadata,
        Node,
    )
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd
except ImportError as reason:
    print(f"skipped: {reason}; pip install mlc-chakra brings it")
    sys.exit(77)

program, root = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
os.environ["SBPLAN_CONFIGS"] = root + "/configs"
GPT = "price tiny-gpt laptop-4 --set layers=4 "
CASES = [
    "search tiny-gpt laptop-4",
    GPT + "--tp 2 --zero 2 --micro-batch 2",
    GPT + "--tp 2 --pp 2 --zero 1",
    GPT + "--pp 4",
    GPT + "--pp 2 --vpp 2 --dp 2 --set clip_norm=1",
    GPT + "--pp 2 --set schedule=zero-bubble --recompute full",
    GPT + "--pp 2 --set schedule=gpipe --zero 3",
    GPT + "--pp 2 --set schedule=message-driven --set gradient_overlap=1",
    GPT + "--dp 4 --set gradient_overlap=0.5",
    GPT + "--pp 2 --set schedule=gpipe --set cluster.levels[0].alpha_s=1e-3",
    "price llama-3.1-8b dgx-h100-8x8 --tp 4 --pp 2 --zero 1 --set global_batch=32 --runtime none",
    "price mixtral-8x7b dgx-h100-8x8 --ep 8 --zero 1 --set global_batch=64 --runtime none",
]


def read(path):
    nodes, trace, meta = [], openFileRd(path), GlobalMetadata()
    assert decodeMessage(trace, meta) and meta.version
    while True:
        node = Node()
        if not decodeMessage(trace, node):
            break
        nodes.append(node)
    trace.close()
    return nodes


def attributes(node):
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


# comm_type by the first word of a node's name.
KINDS = {"all-reduce": 0, "all-gather": 2, "gather": 2, "broadcast": 5, "all-to-all": 6}
KINDS |= {"reduce-scatter": 7, "scatter": 7, "reduce": 0}


def check_kinds(nodes):
    for node in nodes:
        if node.type == COMM_COLL_NODE and node.name.split()[0] in KINDS:
            assert attributes(node)["comm_type"] == KINDS[node.name.split()[0]], node.name


def check_order(nodes):
    """Ids count up, and nodes depend on those before them."""
    assert [node.id for node in nodes] == list(range(len(nodes)))
    assert all(dep < node.id for node in nodes for dep in node.data_deps)


def check_messages(ranks):
    """Whatever is sent is received, once, in the same size."""
    sent, received = {}, {}
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.type not in (COMM_SEND_NODE, COMM_RECV_NODE):
                continue
            a = attributes(node)
            sends = node.type == COMM_SEND_NODE
            key = (a["comm_src"], a["comm_dst"], a["comm_tag"])
            assert a["comm_src" if sends else "comm_dst"] == rank
            into = sent if sends else received
            assert key not in into
            into[key] = a["comm_size"]
    assert sent == received


def check_groups(ranks, groups):
    """All members of a group do the same collectives in the same order."""
    lists = {}
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.type == COMM_COLL_NODE:
                a = attributes(node)
                of_rank = lists.setdefault(a["pg_name"], {}).setdefault(rank, [])
                of_rank.append((a["comm_type"], a["comm_size"]))
    for name, of_ranks in lists.items():
        assert sorted(of_ranks) == sorted(groups[name]), (name, sorted(of_ranks), groups[name])
        assert len({tuple(calls) for calls in of_ranks.values()}) == 1, name
    assert set(lists) == set(groups)


def play(ranks, groups):
    """Microseconds until the last node ends: a collective begins when all members are there, and
    a receipt ends when what was sent has come."""
    ends = [[None] * len(nodes) for nodes in ranks]
    at, arrived, waiting = [0] * len(ranks), {}, {}
    calls = [dict() for _ in ranks]
    moves = True
    while moves:
        moves = False
        for rank, nodes in enumerate(ranks):
            while at[rank] < len(nodes) and try_node(
                nodes[at[rank]], rank, ends, arrived, waiting, calls, groups
            ):
                at[rank] += 1
                moves = True
    assert all(end is not None for of_rank in ends for end in of_rank), "ranks wait for each other"
    return max(end for of_rank in ends for end in of_rank)


def try_node(node, rank, ends, arrived, waiting, calls, groups):
    """Ends a node, or says that it must wait."""
    if ends[rank][node.id] is not None:
        return True
    begin = max((ends[rank][dep] for dep in node.data_deps), default=0)
    if node.type == COMM_COLL_NODE:
        return meet(node, rank, begin, ends, waiting, calls, groups)
    a = attributes(node) if node.type in (COMM_SEND_NODE, COMM_RECV_NODE) else {}
    key = (a.get("comm_src"), a.get("comm_dst"), a.get("comm_tag"))
    if node.type == COMM_RECV_NODE and key not in arrived:
        return False
    if node.type == COMM_RECV_NODE:
        begin = max(begin, arrived[key])
    ends[rank][node.id] = begin + node.duration_micros
    if node.type == COMM_SEND_NODE:
        arrived[key] = ends[rank][node.id]
    return True


def meet(node, rank, begin, ends, waiting, calls, groups):
    """The n-th collective of a group, which ends for all when its last member has come."""
    name = attributes(node)["pg_name"]
    mine = calls[rank].setdefault(name, {})
    number = mine.setdefault(node.id, len(mine))
    members = waiting.setdefault((name, number), {})
    members[rank] = (node, begin)
    if len(members) < len(groups[name]):
        return False
    end = max(start for _, start in members.values()) + max(
        one.duration_micros for one, _ in members.values()
    )
    for other, (one, _) in members.items():
        ends[other][one.id] = end
    return True


def sbplan(words):
    done = subprocess.run([program] + words.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"sbplan {words}: {done.stderr}{done.stdout}")
    return done.stdout


def check(words):
    sbplan(words + " -o plan.json")
    said = json.loads(sbplan("export plan.json --to chakra -o step --json"))
    ranks = [read(path) for path in said["files"][:-1]]
    with open(said["files"][-1], encoding="utf-8") as file:
        groups = json.load(file)
    for nodes in ranks:
        check_order(nodes)
        check_kinds(nodes)
    check_messages(ranks)
    check_groups(ranks, groups)
    played, step = play(ranks, groups) * 1e-6, said["exported_step_s"]
    good = abs(played - step) <= 0.002 * step + 20e-6
    print(f"{'ok' if good else 'FAILED'} {words}: {len(ranks)} ranks, {len(ranks[0])} nodes, ", end="")
    print(f"played {played:.6g} s, exported {step:.6g} s, plan {said['plan_step_s']:.6g} s")
    for path in said["files"]:
        os.unlink(path)
    return good


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    failed = sum(not check(words) for words in CASES)
    print(f"{len(CASES)} plans, {failed} failed")
    os.chdir("/")
sys.exit(failed > 0)
