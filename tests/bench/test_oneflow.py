#!/usr/bin/env python3
"""Strategy files, rows and ratios of the page, held to values worked out by hand."""

import json
import pathlib
import tempfile
import types
import unittest

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

    def test_one_command_of_a_kind(self):
        commands = ["sbplan search a", "sbplan search b", "sbplan run 1", "(ulimit -v 9; sbplan run 1)"]
        self.assertEqual(oneflow.shortest(commands).split("\n"), [commands[0], commands[2], commands[3]])

    def test_paragraphs_are_wrapped_and_tables_are_not(self):
        self.assertEqual(max(map(len, oneflow.wrapped("word " * 90).split("\n"))), 114)
        self.assertEqual(oneflow.wrapped("| " + "a " * 90 + "|").count("\n"), 0)


if __name__ == "__main__":
    unittest.main()
