# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Tests of what `uvmrust` says to a real PyTorch about tensors in the host's memory, and to one that is
built without CUDA about the allocator.

    UVMRUST_PACKAGE=folder torch_cpu.py [Tensors]
"""

import os
import sys
import unittest

import torch

if "UVMRUST_PACKAGE" in os.environ:
    sys.path.insert(0, os.environ["UVMRUST_PACKAGE"])

import uvmrust
import uvmrust.torch


class Tensors(unittest.TestCase):
    def refused(self, call, *arguments, **options):
        with self.assertRaisesRegex(TypeError, "a tensor on cpu .*only dense tensors on a GPU"):
            call(*arguments, **options)

    def test_none_of_the_hosts_is_discarded(self):
        tensor = torch.ones(1 << 20)
        before = uvmrust.stats()
        self.refused(uvmrust.discard, tensor)
        self.refused(uvmrust.discard, tensor, lazy=True, stream=0)
        self.refused(uvmrust.discard_and_prefetch, tensor, to="cpu")
        self.refused(uvmrust.discard, torch.empty(8))
        self.assertEqual(uvmrust.stats(), before)
        self.assertTrue(bool((tensor == 1).all()))

    def test_none_of_the_hosts_is_prefetched(self):
        self.refused(uvmrust.prefetch, torch.empty(8), to="cpu")


class Allocator(unittest.TestCase):
    def test_it_needs_a_pytorch_for_cuda(self):
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, f"{torch.__version__}, is built without CUDA"):
                uvmrust.torch.install()
        self.assertEqual(float(torch.ones(8).sum()), 8)


if __name__ == "__main__":
    unittest.main()
