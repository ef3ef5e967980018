# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Tests of the PyTorch importer; skipped where PyTorch is missing."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
UVMSIM = os.environ.get("UVMSIM", os.path.join(ROOT, "target", "release", "uvmsim"))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

try:
    import torch  # noqa: F401
except ImportError as error:
    if __name__ == "__main__":
        print(f"skipped: PyTorch is missing: {error}")
        sys.exit(0)
    raise unittest.SkipTest(f"PyTorch is missing: {error}") from error

import models
import uvmsim_torch


def by_kind(tensors):
    out = {}
    for _, kind, size, _ in tensors:
        out[kind] = out.get(kind, 0) + size
    return out


class Importer(unittest.TestCase):
    def test_sizes_of_an_mlp(self):
        kernels, tensors = uvmsim_torch.capture(*models.mlp(16), "adam")
        sizes = by_kind(tensors)
        parameters = 4 * (64 * 128 + 128 + 128 * 10 + 10)
        self.assertEqual(sizes["weight"], parameters)
        self.assertEqual(sizes["gradient"], parameters)
        self.assertEqual(sizes["optimizer"], 2 * parameters)
        phases = [k.phase for k in kernels]
        self.assertEqual(sorted(set(phases), key=phases.index), ["forward", "backward", "optimizer"])

    def test_nothing_is_read_before_it_is_there(self):
        for model in (models.mlp, models.vgg16, models.tied):
            kernels, tensors = uvmsim_torch.capture(*model(4), "momentum")
            there = {t[0] for t in tensors if t[1] in ("weight", "optimizer", "input")}
            for k in kernels:
                for s in k.reads:
                    self.assertIn(s, there, k.name)
                there.update(k.writes)

    def test_vgg16_is_the_published_one(self):
        kernels, tensors = uvmsim_torch.capture(*models.vgg16(8), "sgd")
        self.assertEqual(by_kind(tensors)["weight"], 4 * 138_357_544)
        forward = sum(k.flops for k in kernels if k.phase == "forward" and k.product)
        self.assertAlmostEqual(forward / 8 / 2e9, 15.47, delta=0.02)
        backward = sum(k.flops for k in kernels if k.phase == "backward" and k.product)
        self.assertAlmostEqual(backward / forward, 2.0, delta=0.02)

    def test_shared_weights_stay_shared(self):
        _, tensors = uvmsim_torch.capture(*models.tied(4), "sgd")
        tables = [t for t in tensors if t[1] == "weight" and t[2] == 4 * 100 * 32]
        self.assertEqual(len(tables), 1)

    def test_uvmsim_takes_the_trace(self):
        if not os.path.exists(UVMSIM):
            self.skipTest(f"{UVMSIM} is not built")
        command = [sys.executable, os.path.join(HERE, "..", "uvmsim_torch.py"), "models:vgg16", "--batch", "64"]
        trace = subprocess.run(command + ["--uvmsim", UVMSIM], cwd=HERE, capture_output=True, text=True)
        self.assertEqual(trace.returncode, 0, trace.stderr)
        run = [UVMSIM, "run", "--trace", "-", "--policy", "g10", "--gpu-mem", "6GiB", "--json"]
        done = subprocess.run(run, input=trace.stdout, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"step_s"', done.stdout)


if __name__ == "__main__":
    unittest.main()
