"""The page results/ranking.md, its table of numbers and its figure; which strategies are the same."""

import os

import figure
import stats
import strategies


class Row:
    """A strategy: times of a step in seconds, each (predicted, measured)."""

    def __init__(self, labels, step, compute, communication, low, high, layout):
        self.labels = labels
        self.step, self.compute, self.communication = step, compute, communication
        self.low, self.high = low, high
        self.layout = layout


class Group:
    def __init__(self, model, cluster, rows, refused):
        self.model, self.cluster, self.rows, self.refused = model, cluster, rows, refused

    def pairs(self):
        return [row.step for row in self.rows]


def merge_alike(made, read):
    """Strategies that are one plan are run once: [(path, labels)]. read(path): the plan's JSON."""
    alone = []
    for label, path in made.items():
        plan = read(path)
        says = (plan["strategy"], plan["parallel"])
        for other in alone:
            if other[2] == says:
                other[1].append(label)
                break
        else:
            alone.append((path, [label], says))
    return [(path, labels) for path, labels, _ in alone]


def row_of(labels, plan, layout):
    """plan: an element of what `sbplan bench --json` prints; layout: its degrees, in words."""
    measured, predicted = plan["measured"], plan["predicted"]

    def both(key):
        return predicted[key + "_s"], measured[key + "_s"]["median"]

    return Row(labels, both("wall"), both("compute"), both("communication_wall"),
               measured["wall_s"]["low"], measured["wall_s"]["high"], layout)


# --- tables ---


def four(number):
    """Four digits that count, without an exponent where the number is large."""
    text = f"{number:.4g}"
    return f"{float(text):.0f}" if "e+" in text else text


def ms(seconds):
    return four(1e3 * seconds)


def percent(share):
    return f"{100 * share:.1f} %"


def markdown(columns, rows, left=1):
    """A table whose first columns are words and whose others are numbers."""
    rules = ["---"] * left + ["---:"] * (len(columns) - left)
    lines = ["| " + " | ".join(line) + " |" for line in [columns, rules, *rows]]
    return "\n".join(line.replace("|  |", "| |") for line in lines)


def table(group):
    """A model's strategies, the fastest as measured first; pairs are predicted / measured."""
    columns = ["strategy", "predicted, ms", "measured, ms", "range", "off", "compute, ms",
               "communication, ms"]
    rows = []
    for row in sorted(group.rows, key=lambda row: row.step[1]):
        rows.append([", ".join(row.labels), *map(ms, row.step), f"{ms(row.low)} .. {ms(row.high)}",
                     f"{100 * stats.errors([row.step])[0]:+.1f} %",
                     " / ".join(map(ms, row.compute)), " / ".join(map(ms, row.communication))])
    return markdown(columns, rows)


def quality(groups):
    """Of each model, and of all, how well predictions order strategies."""
    columns = ["model", "cluster", "strategies", "Kendall's tau", "median error",
               "regret of the predicted best"]
    every = [group.pairs() for group in groups]
    rows = [[group.model, group.cluster, str(len(pairs)), f"{stats.kendall_tau([pairs]):.3f}",
             percent(stats.median_error([pairs])), percent(stats.regret(pairs))]
            for group, pairs in zip(groups, every)]
    rows.append(["all", "", str(sum(map(len, every))), f"{stats.kendall_tau(every):.3f}",
                 percent(stats.median_error(every)), percent(max(map(stats.regret, every)))])
    return markdown(columns, rows, 2)


def gain_of(label, row, chosen):
    predicted, measured = (stats.gain(of, best) for of, best in zip(row.step, chosen.step))
    return [label, row.layout, ms(row.step[1]), f"{measured:.2f} x", f"{predicted:.2f} x",
            ms(row.communication[1])]


def fastest_by_hand(group):
    """The strategy by degrees that took the least time, whatever was predicted."""
    found = {strategies.SEARCHED, *strategies.BASELINES}
    others = [row for row in group.rows if not found.intersection(row.labels)]
    return min(others, key=lambda row: row.step[1]) if others else None


def gains(group):
    """The searched plan beside the best of each family: figures 9 and 10 in small."""
    columns = ["best of", "plan", "measured, ms", "searched gains", "as predicted",
               "communication, ms"]
    by_label = {label: row for row in group.rows for label in row.labels}
    chosen = by_label.get(strategies.SEARCHED)
    rows = []
    for label in strategies.BASELINES:
        row = by_label.get(label)
        if row is None or chosen is None:
            rows.append([label, group.refused.get(label, "no plan"), "-", "-", "-", "-"])
            continue
        rows.append(gain_of(label, row, chosen))
    by_hand = fastest_by_hand(group)
    if by_hand is not None and chosen is not None:
        rows.append(gain_of("by hand: " + by_hand.labels[0], by_hand, chosen))
    return markdown(columns, rows, 2)


# --- the page ---

HEAD = """# Ranking strategies: predicted and measured steps

AutoDDL's figure 4, and in small its figures 9 and 10, run by `./dev bench ranking` (tests/bench/ranking/bench.py with
`--rounds {rounds} --steps {steps} --budget-s {budget}`) at commit {commit}, {version}, seed {seed}, on {cores} cores ({took:.0f} minutes, load average {load:.1f} at the end, its own ranks included).

Eight ranks train on virtual clusters: hosts are network namespaces with shaped links
(tests/ranks/virtual_cluster.sh; {clusters}),
devices rest after they computed, so that each is 1/{slowdown:g} of a core
([`slowdown`](../docs/cluster-file.md)). Ranks share {cores} cores, and still compute side by side: **measured is the wall
time of a step**, with all that ranks wait. Ranks that wait sleep (tests/ranks/rest_when_idle.c), in the calibration as
in the run. Each cluster was calibrated first (`sbplan calibrate`, {budget} s); nothing was fitted to a run.
Strategies of a model took turns, {rounds} rounds of {steps} steps that count, after one that does not; the range is
that of the rounds.

Kendall's tau (tau-b) counts pairs of strategies of one model on one cluster; the error is that of the step; regret is how
much longer the predicted best takes than the measured best.

{quality}

![predicted over measured steps](ranking.svg)
"""

GAINS = """
## The searched plan and others

Best of each family as `sbplan search --space` finds it, all run; by hand: the strategy by degrees that was measured
fastest, in hindsight.
Gains are the row's step over that of the searched plan; communication is all time within the backend,
waiting included.
"""


def write_csv(path, groups):
    lines = ["model,cluster,strategy,layout,predicted_s,measured_s,low_s,high_s,"
             "predicted_compute_s,measured_compute_s,predicted_communication_s,measured_communication_s"]
    for group in groups:
        for row in group.rows:
            numbers = [*row.step, row.low, row.high, *row.compute, *row.communication]
            words = [group.model, group.cluster, "; ".join(row.labels), row.layout]
            lines.append(",".join([f'"{word}"' for word in words] + [f"{n:.6g}" for n in numbers]))
    path.write_text("\n".join(lines) + "\n")


def write(out, groups, options, commit, version, took_s):
    """ranking.md, .csv and .svg in the folder `out`."""
    clusters = "; ".join(f"{name}: {of['hosts']} hosts of {of['ranks']} ranks, {of['mbit']} Mbit/s"
                         for name, of in strategies.CLUSTERS.items())
    text = HEAD.format(commit=commit, version=version, seed=options.seed, cores=os.cpu_count(),
                       took=took_s / 60, load=os.getloadavg()[0], clusters=clusters,
                       slowdown=options.slowdown, budget=options.budget_s, rounds=options.rounds,
                       steps=options.steps, quality=quality(groups))
    text += GAINS
    for group in groups:
        text += f"\n### {group.model} on {group.cluster}\n\n{gains(group)}\n"
    text += "\n## All strategies\n\nPairs of numbers are predicted and measured.\n"
    for group in groups:
        text += f"\n### {group.model} on {group.cluster}, all\n\n{table(group)}\n"
        for label, reason in group.refused.items():
            text += f"\nNot run: {label}: {reason}\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "ranking.md").write_text(text)
    write_csv(out / "ranking.csv", groups)
    (out / "ranking.svg").write_text(
        figure.scatter({f"{g.model} on {g.cluster}": g.pairs() for g in groups}))
