#!/usr/bin/env python3
"""Strategy files, rows and ratios of the page, held to values worked out by hand."""

import json
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import oneflow


class Plan(oneflow.Row):
    """A plan of 8 samples, without a file."""

    def __init__(self, label, predicted_s, measured_s, replayed_s):
        super().__init__(label, None)
        self.verified = 0.25
        self.times = {"predicted": {"wall_s": predicted_s},
                      "measured": {"wall_s": {"median": measured_s}, "replay_s": {"median": replayed_s},
                                   "arena_bytes": 3 * 2**20}}

    def plan(self):
        return {"model": {"global_batch": 8},
                "strategy": {"layers": [{"name": "fc", "roles": {"batch": [4]}}, {"name": "relu", "rest": "B"},
                                        {"name": "head", "roles": {"batch": [4]}}]}}


class Page(unittest.TestCase):
    def test_row(self):
        self.assertEqual(oneflow.cells(Plan("one", 0.5, 1.0, 0.75)),
                         ["one", "500", "1000", "2.00", "750", "1.50", "8", "3.0", "0.25"])

    def test_ratio(self):
        self.assertEqual(oneflow.over(Plan("slow", 2, 6, 4), Plan("fast", 1, 2, 1)), [2, 3, 4])

    def test_strategy_changes_the_roles_that_it_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = types.SimpleNamespace(folder=pathlib.Path(folder))
            file = oneflow.strategy(bench, Plan("one", 1, 1, 1), "mine", {"head": {"column": [4]}})
            self.assertEqual(json.loads(file.read_text()),
                             {"layers": [{"name": "fc", "roles": {"batch": [4]}},
                                         {"name": "head", "roles": {"column": [4]}}]})

    def test_large_times_have_no_exponent(self):
        row = oneflow.cells(Plan("slow", 2, 11.614, 9.9996))
        self.assertEqual([row[column] for column in (1, 2, 4)], ["2000", "11610", "10000"])

    def test_a_program_that_is_missing_or_fails_is_refused(self):
        for words, reason in ((["/nonexistent/program"], "/nonexistent/program: No such file"),
                              (["sh", "-c", "echo broken >&2; exit 3"], "broken"), (["sh", "-c", "exit 3"], "sh: exit 3"),
                              (["sh", "-c", "echo infeasible: too large; echo advice; exit 1"], "infeasible: too large")):
            with self.assertRaisesRegex(oneflow.Refused, reason):
                oneflow.output_of(words)

    def test_rows_of_actors(self):
        said = "  way  read\n  ----\n  synthetic data  0.00  0.08  0.01  7.20  66.88  1.000  7.20  1.000\n"
        self.assertEqual(oneflow.actor_row(said, "synthetic data"),
                         ["synthetic data", "0.00 / 0.08 / 0.01 / 7.20", "66.88", "1.000", "7.20", "1.000"])
        for text in (said.replace(" 66.88", " -"), ""):
            with self.assertRaises(oneflow.Refused):
                oneflow.actor_row(text, "synthetic data")

    def test_tables_on_every_rank_are_compared_where_they_fit(self):
        rows = {(1, "by columns"): Plan("", 1, 1, 1), (1, "on every rank"): Plan("", 9, 9, 9),
                (2, "on every rank"): Plan("", 2, 6, 4), (2, "by columns"): Plan("", 1, 2, 1),
                (3, "by columns"): Plan("", 1, 1, 1)}
        self.assertIn("of 2 ids: 2.00 by prediction, 3.00 measured, 4.00 replayed", oneflow.on_every_rank(rows))
        self.assertEqual(oneflow.on_every_rank({(3, "by columns"): rows[3, "by columns"]}), "")

    def test_what_a_limit_of_the_system_does(self):
        def refuse(*_, limit_kb):
            raise oneflow.Refused(f"{limit_kb} is too little")

        row = Plan("", 1, 1, 1)
        self.assertEqual(oneflow.under_limit(types.SimpleNamespace(sbplan=lambda *_, limit_kb: ""), row), "runs")
        self.assertEqual(oneflow.under_limit(types.SimpleNamespace(sbplan=refuse), row),
                         f"is refused: `{oneflow.RUN_CAP_KB} is too little`")

    def test_what_a_search_proves(self):
        feasible = {"status": "feasible", "objective_s": 1.05, "lower_bound_s": 1.0}
        self.assertIn("no plan that runs costs less", oneflow.proof({**feasible, "status": "optimal"}))
        self.assertIn("at most 5.0 % more", oneflow.proof(feasible))
        self.assertIn("no bound was proved", oneflow.proof({**feasible, "lower_bound_s": 0}))

    def test_a_figure_that_fails_leaves_the_page(self):
        def fail(bench):
            raise oneflow.Refused("no")

        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "oneflow_run.md"
            file.write_text("as before")
            bench = types.SimpleNamespace()
            figures = [("1", "good", lambda bench: ["a paragraph"]), ("2", "bad", fail)]
            with unittest.mock.patch.multiple(oneflow, head=lambda bench: "head", FIGURES=figures):
                self.assertRaises(oneflow.Refused, oneflow.write, bench, folder)
                self.assertEqual(file.read_text(), "as before")
                figures.pop()
                oneflow.write(bench, folder)
            self.assertIn("## Figure 1: good\n\na paragraph\n", file.read_text())

    def test_one_command_of_a_kind(self):
        commands = ["sbplan search a", "sbplan search b", "sbplan run 1", "(ulimit -v 9; sbplan run 1)"]
        self.assertEqual(oneflow.shortest(commands).split("\n"), [commands[0], commands[2], commands[3]])

    def test_paragraphs_are_wrapped_and_tables_are_not(self):
        self.assertEqual(max(map(len, oneflow.wrapped("word " * 90).split("\n"))), 114)
        self.assertEqual(oneflow.wrapped("| " + "a " * 90 + "|").count("\n"), 0)


if __name__ == "__main__":
    unittest.main()
