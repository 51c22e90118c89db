"""How well predicted times order measured ones: pure functions of lists of numbers.

A group is a list of (predicted, measured) of strategies that train one model on one cluster: only
these compete, and only pairs within a group are ordered.
"""

import math


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def sign(number):
    return (number > 0) - (number < 0)


def count_pairs(group):
    """Of all pairs of a group: (ordered alike, ordered the other way, tied in the prediction, tied
    as measured); a pair that is tied in both counts as both."""
    alike = other = tied_predicted = tied_measured = 0
    for i, (predicted, measured) in enumerate(group):
        for before_predicted, before_measured in group[:i]:
            by_prediction = sign(predicted - before_predicted)
            by_measure = sign(measured - before_measured)
            alike += by_prediction * by_measure > 0
            other += by_prediction * by_measure < 0
            tied_predicted += by_prediction == 0
            tied_measured += by_measure == 0
    return alike, other, tied_predicted, tied_measured


def kendall_tau(groups):
    """Kendall's tau-b (Kendall, 1945) over the pairs within groups; NaN where all are tied."""
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    counts = [count_pairs(group) for group in groups]
    alike, other, tied_predicted, tied_measured = (sum(column) for column in zip(*counts))
    scale = math.sqrt((pairs - tied_predicted) * (pairs - tied_measured))
    return (alike - other) / scale if scale > 0 else math.nan


def errors(group):
    """Of each strategy: how much longer than measured it was predicted, as a share."""
    return [predicted / measured - 1 for predicted, measured in group]


def median_error(groups):
    return median([abs(error) for group in groups for error in errors(group)])


def regret(group):
    """How much longer than the fastest the strategy takes that is predicted to be it; of several
    that are, the first."""
    _, chosen = min(group, key=lambda pair: pair[0])
    return chosen / min(measured for _, measured in group) - 1


def gain(baseline, chosen):
    """How many times as long the baseline takes."""
    return baseline / chosen
