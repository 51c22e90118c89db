#!/usr/bin/env python3
"""What the demo says of plans and measurements that are worked out by hand."""

import pathlib
import tempfile
import types
import unittest

import demo


def plan(step_s, **search):
    return {"cost": {"step_s": step_s}, "search": search}


def row(predicted_s, wall_s, replay_s, parallel=True):
    measured = {"wall_s": {"median": wall_s}, "replay_s": {"median": replay_s}, "compute_s": {"median": replay_s},
                "arena_bytes": 2**20}
    return {"predicted": {"wall_s": predicted_s, "compute_s": predicted_s}, "measured": measured,
            "wall_is_parallel": parallel}


class Story(unittest.TestCase):
    def test_plans_that_cost_alike_are_measured_once(self):
        plans = {"data": plan(1.5), "megatron": plan(1.005), "found": plan(1.0)}
        self.assertEqual(demo.told_apart(plans), ["data", "found"])
        rows = {"data": row(1.5, 1.6, 1.5), "found": row(1.0, 0.8, 0.8)}
        self.assertEqual(list(demo.gain(plans, rows)),
                         ["2.00 times as fast as data parallelism, predicted 1.50 times",
                          "Megatron costs 0.5 % more by prediction: too little to measure"])

    def test_what_does_not_fit_is_said(self):
        plans = {"data": None, "megatron": plan(2.0), "found": plan(1.0)}
        self.assertEqual(demo.told_apart(plans), ["megatron", "found"])
        rows = {"megatron": row(2.0, 2.0, 2.0), "found": row(1.0, 1.0, 1.0)}
        self.assertEqual(next(demo.gain(plans, rows)), "data parallelism: no plan was found that fits the memory of a rank")

    def test_a_found_plan_may_cost_more(self):
        plans = {"data": plan(0.9), "megatron": plan(0.995), "found": plan(1.0)}
        self.assertEqual(demo.told_apart(plans), ["data", "found"])
        rows = {"data": row(0.9, 0.9, 0.9), "found": row(1.0, 1.0, 1.0)}
        self.assertEqual(list(demo.gain(plans, rows)),
                         ["0.90 times as fast as data parallelism, predicted 0.90 times",
                          "Megatron costs 0.5 % less by prediction: too little to measure"])

    def test_what_a_search_says(self):
        with tempfile.TemporaryDirectory() as folder:
            it = types.SimpleNamespace(out=pathlib.Path(folder))
            for verdict in ("infeasible: no strategy of space full fits 1 GiB a device",
                            "no strategy of space full was found that fits 1 GiB a device, nor a proof",
                            "no strategy of space full was found before the search was stopped: time limit"):
                (it.out / "found.txt").write_text(f"search     space full, 10^3.1 strategies\n\n{verdict}\n")
                self.assertEqual(demo.Demo.said(it, "found.txt", demo.NO_PLAN), verdict)
            (it.out / "found.txt").write_text("something else\n")
            with self.assertRaises(SystemExit) as end:
                demo.Demo.said(it, "found.txt", demo.NO_PLAN)
            self.assertEqual(end.exception.code, "something else\n")

    def test_strategies_may_not_be_counted(self):
        for line, count in (("space full, 10^8.4 strategies, full boxing", "10^8.4 strategies"),
                            ("space full, 1 strategy, full boxing", "1 strategy"),
                            ("space full, full boxing", "its strategies")):
            self.assertEqual(demo.counted(f"search     {line}; exact: optimal\n"), count)

    def test_ranks_that_waited_are_compared_by_what_they_computed(self):
        plans = {"data": plan(1.5), "megatron": None, "found": plan(1.0)}
        for rows in ({"data": row(1.5, 9.0, 1.8), "found": row(1.0, 1.0, 1.0)},
                     {"data": row(1.5, 1.0, 1.8, False), "found": row(1.0, 1.0, 1.0, False)}):
            self.assertTrue(next(demo.gain(plans, rows)).startswith("1.80 times"))

    def test_proof(self):
        optimal = plan(1.0, status="optimal", objective_s=1.0, lower_bound_s=1.0)["search"]
        self.assertTrue(demo.proof(optimal, "10^8.4 strategies").startswith("optimal: of 10^8.4 strategies none"))
        feasible = plan(1.0, status="feasible", objective_s=1.05, lower_bound_s=1.0)["search"]
        self.assertIn("at most 5 % above the best", demo.proof(feasible, "10^8.4 strategies"))
        for search in ({**feasible, "lower_bound_s": 0}, {"status": "feasible", "objective_s": 1.05}):
            self.assertTrue(demo.proof(search, "10^8.4 strategies").startswith("no bound was proved"))

    def test_table_lines_up(self):
        rows = {"data": row(1.5, 9.0, 1.8), "found": row(0.01, 0.01, 0.01)}
        lines = list(demo.aligned(demo.table(rows)))
        self.assertEqual(len({len(line) for line in lines}), 1)
        self.assertIn("  6.00  ", lines[1])

    def test_long_steps_have_no_exponent(self):
        self.assertEqual([demo.milliseconds(step_s) for step_s in (0.8902, 8.444, 11.614)],
                         ["890.2 ms", "8444 ms", "11614 ms"])


if __name__ == "__main__":
    unittest.main()
