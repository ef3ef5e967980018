# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Tests of the Python package; skipped where the program is not built."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
os.environ.setdefault("UVMSIM", os.path.join(HERE, "..", "..", "..", "target", "release", "uvmsim"))

import uvmsim


@unittest.skipUnless(os.path.exists(os.environ["UVMSIM"]), "cargo build --release -p uvmsim")
class Package(unittest.TestCase):
    def test_from_zoo_to_replay(self):
        trace = uvmsim.zoo("vgg16", batch=32)
        self.assertTrue(trace.startswith("uvmtrace 1"))
        small = {"gpu_mem": "3GiB"}
        outcomes = uvmsim.compare(trace, policies=["base-uvm", "most"], **small)
        names = [o["policy"] for o in outcomes["policies"]]
        self.assertEqual(names, ["base-uvm", "most"])
        self.assertGreaterEqual(outcomes["policies"][1]["step_s"], outcomes["bound_s"])
        text = uvmsim.plan(trace, "most", **small)
        again = uvmsim.replay(trace, text, **small)
        self.assertEqual(again["step_s"], outcomes["policies"][1]["step_s"])

    def test_lists(self):
        self.assertIn("bert-large", [n["name"] for n in uvmsim.networks()])
        self.assertIn("a100", [m["name"] for m in uvmsim.machines()])
        self.assertEqual(uvmsim.machine("a100")["gpu-mem"], 40 * 2**30)

    def test_figures(self):
        (table,) = uvmsim.figures("discard-t7", traces=HERE)
        self.assertEqual(table["source"], "UvmDiscard table 7")
        first = table["rows"][0]["cells"]["<100% P3"]
        self.assertEqual(first["published"], 1.05)
        self.assertIn("missing", first["ours"])

    def test_errors_are_the_programs(self):
        with self.assertRaisesRegex(uvmsim.Error, "resnet51"):
            uvmsim.zoo("resnet51")


if __name__ == "__main__":
    unittest.main()
