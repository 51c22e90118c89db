"""The package as pip installed it: answers as the command line gives them, errors in its words."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import sbplan

MODEL = {"name": "one", "global_batch": 16, "precision": "fp32", "layers": [
    {"op": "linear", "name": "fc1", "in": 48, "out": 96}, {"op": "cross_entropy", "name": "loss"}]}


def said(*words):
    return json.loads(subprocess.run([sbplan.program(), *words, "--json"], stdout=subprocess.PIPE, check=True).stdout)


class Package(unittest.TestCase):
    def test_program_is_the_installed_one(self):
        self.assertEqual(os.path.dirname(sbplan.program()), os.path.dirname(sys.executable))

    def test_search(self):
        plan = sbplan.search("tiny-gpt", "laptop-4", seed=3)
        answer = said("search", "tiny-gpt", "laptop-4", "--seed", "3")
        self.assertEqual(plan.step_s, answer["cost"]["step_s"])
        self.assertEqual(plan.status, "optimal")
        self.assertEqual(plan.lower_bound_s, plan.step_s)
        self.assertEqual(plan.layout.text, answer["layout"]["text"])
        self.assertEqual([layer.name for layer in plan.layers], [layer["name"] for layer in answer["layers"]])
        self.assertEqual(plan.memory_bytes, answer["memory"]["device_bytes"])
        self.assertEqual(sum(stage.in_flight for stage in plan.stages), 1)

    def test_options(self):
        plan = sbplan.search("tiny-gpt", "laptop-4", set={"pipeline": 2, "regather": True}, quick=True, runtime=None,
                             sweep=[], fix=["block0.up=row:2"])
        self.assertEqual(plan.parallel["pipeline"], 2)
        self.assertTrue(plan.parallel["regather"])
        self.assertIn("row", next(layer for layer in plan.layers if layer.name == "block0.up").roles)

    def test_price_explain(self):
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "plan.json")
            plan = sbplan.price("tiny-gpt", "laptop-4", tp=2, output=name)
            self.assertEqual((plan.layout.tensor, plan.layout.data), (2, 2))
            again = sbplan.explain(name)
            self.assertEqual(again.step_s, plan.step_s)
            self.assertEqual(again.layout, plan.layout)
            self.assertTrue(again.answer["tensors"])

    def test_dictionaries(self):
        model = json.loads(json.dumps(MODEL))
        plan = sbplan.search(model, "laptop-4")
        self.assertEqual([layer.name for layer in plan.layers], ["fc1", "loss"])
        model["layers"][0]["op"] = "linaer"
        with self.assertRaisesRegex(sbplan.Error, "linaer"):
            sbplan.search(model, "laptop-4")

    def test_errors(self):
        with self.assertRaisesRegex(sbplan.Error, "tiny-gtp"):
            sbplan.search("tiny-gtp", "laptop-4")
        with self.assertRaisesRegex(sbplan.Error, "unknown option"):
            sbplan.search("tiny-gpt", "laptop-4", spaec="full")
        with self.assertRaises(sbplan.Infeasible) as refused:
            sbplan.search("tiny-gpt", "laptop-4", memory_limit="1K")
        self.assertEqual(refused.exception.answer["status"], "infeasible")
        self.assertIn("1024", str(refused.exception))


unittest.main()
