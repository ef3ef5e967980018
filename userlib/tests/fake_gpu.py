# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Runs a script with PyTorch's CPU build as if the CPU were a GPU (fake_gpu.c): each operator is
a launch of a kernel of its name, which is given the addresses of its tensors. What the program
reads of a tensor waits for the GPU, as it does on a real one.

    fake_gpu.py SCRIPT [ARGUMENT...]
"""

import ctypes
import runpy
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

gpu = ctypes.CDLL(None)


def is_view(schema):
    writes = any(a.alias_info and a.alias_info.is_write for a in schema.arguments)
    return not writes and any(r.alias_info for r in schema.returns)


class Launches(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.replace("::", "_")
        if name == "aten__local_scalar_dense":
            gpu.fake_wait()
        elif not is_view(func._schema) and not name.startswith("aten_empty"):
            leaves = tree_flatten((args, kwargs, result))[0]
            at = [t.data_ptr() for t in leaves if isinstance(t, torch.Tensor)]
            # The stub's kernels whose names begin so are given a structure by value.
            array = (ctypes.c_void_p * len(at))(*at)
            gpu.fake_launch(b"wide_" + name.encode(), array, ctypes.c_size_t(len(at)))
        return result


gpu.fake_start()
sys.argv = sys.argv[1:]
with Launches():
    runpy.run_path(sys.argv[0], run_name="__main__")
