# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Tests of the Python package; skipped where the program is not built.

With --installed, of the package and the program that are installed, not of the checkout's.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
if "--installed" in sys.argv:
    sys.argv.remove("--installed")
else:
    sys.path.insert(0, os.path.join(HERE, ".."))
    os.environ.setdefault("UVMSIM", os.path.join(HERE, "..", "..", "..", "target", "release", "uvmsim"))

import uvmsim

DOCS = os.environ.get("UVMSIM_DOCS", os.path.join(HERE, "..", "..", "..", "docs", "simulator-python.md"))


@unittest.skipUnless(os.path.exists(uvmsim.program()), "cargo build --release -p uvmsim")
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

    def test_what_a_notebook_shows(self):
        trace = uvmsim.zoo("vgg16", batch=16)
        self.assertEqual(uvmsim.info(trace)["bytes_by_kind"]["weight"], 4 * 138_357_544)
        options = {"gpu_mem": "3GiB", "policies": ["base-uvm", "best"]}
        page = uvmsim.report(trace, **options)
        self.assertTrue(page.page.startswith("<!doctype html>"))
        self.assertIn("srcdoc=\"&lt;!doctype html", page._repr_html_())
        plots = uvmsim.plots(trace, **options)
        self.assertIn("times", plots)
        self.assertTrue(plots["best-memory"]._repr_svg_().startswith("<svg "))

    @unittest.skipUnless(os.path.exists(DOCS), "no documentation beside the tests")
    def test_the_documented_notebook(self):
        with open(DOCS, encoding="utf-8") as file:
            cells = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        self.assertGreater(len(cells), 3)
        names, printed = {}, io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
            back = os.getcwd()
            os.chdir(folder)
            try:
                for cell in cells:
                    exec(compile(cell, "simulator-python.md", "exec"), names)
                self.assertTrue(os.path.getsize("bert.html") > 50_000)
            finally:
                os.chdir(back)
        self.assertIn("of the bound", printed.getvalue())

    def test_advice(self):
        fits = uvmsim.advise("alexnet", batch=8, precision="bf16")
        self.assertEqual((fits["spilled_bytes"], fits["policies"]), (0, []))
        self.assertGreater(fits["largest_whole_batch"], 8)
        with self.assertRaisesRegex(uvmsim.Error, "is missing"):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write('{"model_type": "llama"}')
                file.flush()
                uvmsim.zoo(config=file.name)

    def test_errors_are_the_programs(self):
        with self.assertRaisesRegex(uvmsim.Error, "resnet51"):
            uvmsim.zoo("resnet51")


if __name__ == "__main__":
    unittest.main()
