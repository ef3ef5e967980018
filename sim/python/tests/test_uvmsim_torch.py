# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Tests of the PyTorch importer; skipped where PyTorch is missing."""

import json
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

from torch.nn.functional import cross_entropy

import models
import uvmsim_torch


def summary(text):
    """What `uvmsim trace --json` says of a trace."""
    done = subprocess.run([UVMSIM, "trace", "-", "--json"], input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


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

    def test_blocks_of_a_list_are_parts(self):
        kernels, _ = uvmsim_torch.capture(*models.stack(4), "sgd")
        parts = [k.part for k in kernels]
        self.assertEqual(sorted(set(parts) - {None}), [0, 1, 2])
        named = [k.part for k in kernels if k.part is not None]
        self.assertEqual(named, sorted(named), "in order")
        self.assertEqual({k.phase for k in kernels if k.part is not None}, {"forward"})
        self.assertIn(None, parts[: len(named) + 1], "the head is in none")
        text = uvmsim_torch.trace_text(*uvmsim_torch.capture(*models.stack(4), "sgd"), "stack", 4, [1] * len(kernels))
        self.assertEqual(text.count(" checkpoint="), len(named))

    def test_masks_are_no_input(self):
        _, tensors = uvmsim_torch.capture(*models.vgg16(8), "sgd")
        self.assertEqual(by_kind(tensors)["input"], 8 * 3 * 224 * 224 * 4 + 8 * 8)

    def test_the_zoo_is_what_torchvision_trains(self):
        """The zoo's steps against those captured of torchvision's own models."""
        try:
            import torchvision
        except ImportError:
            self.skipTest("torchvision is missing (Debian: python3-torchvision)")
        if not os.path.exists(UVMSIM):
            self.skipTest(f"{UVMSIM} is not built")
        same = {"alexnet": "alexnet", "vgg16": "vgg16", "resnet50": "resnet50", "inceptionv3": "inception_v3", "vit-base": "vit_b_16"}
        for zoo, name in same.items():
            with self.subTest(zoo):
                only = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
                model = getattr(torchvision.models, name)(**only)
                size = 299 if name == "inception_v3" else 224
                target = torch.zeros(16, dtype=torch.long, device="meta")
                inputs = (torch.zeros(16, 3, size, size, device="meta"),)
                kernels, tensors = uvmsim_torch.capture(model, inputs, lambda y: cross_entropy(y, target), "momentum")
                theirs = summary(uvmsim_torch.trace_text(kernels, tensors, name, 16, [1] * len(kernels)))
                options = ["--batch", "16", "--precision", "fp32", "--optimizer", "momentum"]
                text = subprocess.run([UVMSIM, "zoo", zoo, *options], capture_output=True, text=True, check=True).stdout
                ours = summary(text)
                for kind in ("weight", "gradient", "optimizer", "input"):
                    # Theirs have labels, and count batches in 8 bytes a layer.
                    self.assertAlmostEqual(theirs["bytes_by_kind"][kind], ours["bytes_by_kind"][kind], delta=2000, msg=kind)
                peaks = [o["bytes"]["peak_live"] for o in (ours, theirs)]
                # PyTorch 2's attention, on shapes alone, keeps scaled queries and keys too.
                plain = not hasattr(torch.nn.functional, "scaled_dot_product_attention") or name != "vit_b_16"
                self.assertAlmostEqual(peaks[0] / peaks[1], 1.0, delta=0.01 if plain else 0.08)
                print(f"{zoo}: peak {peaks[0] / 2**20:.1f} MiB, torchvision's {peaks[1] / 2**20:.1f}")

    def test_what_pytorch_cannot_do_is_named(self):
        ids = torch.zeros(4, dtype=torch.long, device="meta")
        with self.assertRaisesRegex(NotImplementedError, r"PyTorch .* cannot run aten.bincount"):
            uvmsim_torch.call(torch.ops.aten.bincount.default, (ids,), {})

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
