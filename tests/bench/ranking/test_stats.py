#!/usr/bin/env python3
"""Kendall's tau, regret, errors, and tables held to values worked out by hand."""

import math
import unittest

import figure
import page
import stats


class Tau(unittest.TestCase):
    def test_by_hand(self):
        # Predicted order 1 2 3 4, measured 2 1 4 3: of six pairs two are the other way round.
        group = [(1, 2), (2, 1), (3, 4), (4, 3)]
        self.assertEqual(stats.count_pairs(group), (4, 2, 0, 0))
        self.assertAlmostEqual(stats.kendall_tau([group]), 2 / 6)

    def test_extremes(self):
        self.assertEqual(stats.kendall_tau([[(1, 10), (2, 20), (3, 30)]]), 1)
        self.assertEqual(stats.kendall_tau([[(1, 30), (2, 20), (3, 10)]]), -1)

    def test_ties(self):
        # Three pairs; one is tied in the prediction, the other two are ordered alike.
        group = [(1, 1), (1, 2), (2, 3)]
        self.assertEqual(stats.count_pairs(group), (2, 0, 1, 0))
        self.assertAlmostEqual(stats.kendall_tau([group]), 2 / math.sqrt(2 * 3))
        self.assertTrue(math.isnan(stats.kendall_tau([[(1, 1), (1, 2)]])))

    def test_pairs_across_groups_do_not_count(self):
        # Within each group the order is reversed; across them it would be alike.
        self.assertEqual(stats.kendall_tau([[(1, 2), (2, 1)], [(10, 20), (20, 10)]]), -1)
        # Groups of 3 and 1 pairs, all alike but one: (3 - 1) / 4.
        self.assertAlmostEqual(stats.kendall_tau([[(1, 1), (2, 2), (3, 3)], [(1, 2), (2, 1)]]), 0.5)


class Errors(unittest.TestCase):
    def test_median(self):
        self.assertEqual(stats.median([5, 1, 3]), 3)
        self.assertEqual(stats.median([4, 1, 3, 2]), 2.5)

    def test_error_is_of_the_measured_time(self):
        self.assertEqual(stats.errors([(1.5, 1), (0.5, 2)]), [0.5, -0.75])
        self.assertAlmostEqual(stats.median_error([[(1.5, 1), (0.5, 2)], [(1, 1)]]), 0.5)

    def test_regret(self):
        self.assertEqual(stats.regret([(1, 3), (2, 2), (3, 4)]), 0.5)
        self.assertEqual(stats.regret([(2, 3), (1, 2), (3, 4)]), 0)

    def test_gain(self):
        self.assertEqual(stats.gain(3, 2), 1.5)


def plan(step_s, compute_s, file="a.json"):
    """An element of what `sbplan bench --json` prints: predicted twice what was measured."""
    times = {"wall_s": step_s, "compute_s": compute_s, "communication_wall_s": 0.25}
    return {"file": file, "schedule": "1f1b", "ranks": 8,
            "predicted": {key: 2 * value for key, value in times.items()},
            "measured": {key: {"median": value, "low": value, "high": value + 0.5}
                         for key, value in times.items()}}


class Tables(unittest.TestCase):
    def group(self):
        rows = [page.row_of(["data parallel", "ZeRO"], plan(3, 1), "TP 1"),
                page.row_of(["searched"], plan(2, 1), "TP 2")]
        return page.Group("gpt", "2x4", rows, {"Myelin": "no plan fits"})

    def test_same_plans_are_one_row(self):
        plans = {"a": {"strategy": 1, "parallel": 2, "cost": 3},
                 "b": {"strategy": 1, "parallel": 2, "cost": 4},
                 "c": {"strategy": 1, "parallel": 3, "cost": 3}}
        made = {"first": "a", "second": "b", "third": "c"}
        self.assertEqual(page.merge_alike(made, plans.get),
                         [("a", ["first", "second"]), ("c", ["third"])])

    def test_strategies_are_sorted_by_measure(self):
        lines = page.table(self.group()).splitlines()
        self.assertEqual(lines[2], "| searched | 4000 | 2000 | 2000 .. 2500 | +100.0 % "
                                   "| 2000 / 1000 | 500 / 250 |")
        self.assertTrue(lines[3].startswith("| data parallel, ZeRO | 6000 | 3000 |"))

    def test_quality(self):
        lines = page.quality([self.group()]).splitlines()
        self.assertEqual(lines[2], "| gpt | 2x4 | 2 | 1.000 | 100.0 % | 0.0 % |")
        self.assertEqual(lines[3], "| all | | 2 | 1.000 | 100.0 % | 0.0 % |")

    def test_gains(self):
        lines = page.gains(self.group()).splitlines()
        self.assertIn("| data parallel | TP 1 | 3000 | 1.50 x | 1.50 x | 250 |", lines)
        self.assertIn("| ZeRO | TP 1 | 3000 | 1.50 x | 1.50 x | 250 |", lines)
        self.assertIn("| Myelin | no plan fits | - | - | - | - |", lines)
        self.assertIn("| searched | TP 2 | 2000 | 1.00 x | 1.00 x | 250 |", lines)


class Figure(unittest.TestCase):
    def test_equal_times_lie_on_the_diagonal(self):
        drawn = figure.scatter({"gpt": [(1, 1), (4, 2)]})
        self.assertEqual(drawn.count("<circle"), 2)
        # Times from 1 / 1.2 to 4 x 1.2 s: the first lies ln 1.2 / ln 5.76 of 480 from the corner.
        along = 480 * math.log(1.2) / math.log(5.76)
        self.assertIn(f'cx="{60 + along:.1f}" cy="{500 - along:.1f}"', drawn)

    def test_ticks(self):
        self.assertEqual(figure.ticks(0.15, 3), [0.2, 0.5, 1, 2])


if __name__ == "__main__":
    unittest.main()
