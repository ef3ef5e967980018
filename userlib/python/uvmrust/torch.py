# SPDX-License-Identifier: GPL-2.0 OR MIT
"""PyTorch in managed memory: a model may be larger than the GPU, and what PyTorch frees is
discarded, so that it is not copied around.

    import torch, uvmrust.torch
    uvmrust.torch.install()             # before the first use of the GPU

Nothing else in the program changes. `uvmrust.torch.stats()` says what came of it.
"""

import ctypes

from . import _native
from ._library import path

# The names under which PyTorch's pluggable allocator is given its functions, and ours.
# Without record_stream, Tensor.record_stream() would do nothing, and what a side stream
# still reads would be discarded.
_CALLS = {
    "set_record_stream_fn": "uvmrust_torch_record_stream",
    "set_reset_fn": "uvmrust_torch_empty_cache",
}

_installed = None


def install():
    """Makes PyTorch allocate in managed memory, with discard of what is free.

    It has to come before the program's first use of the GPU, and may be called again.
    `torch.cuda.empty_cache()` and `Tensor.record_stream()` work as they do without.

    Raises RuntimeError if PyTorch has used its own allocator already, is built without
    CUDA, or is so old that its pluggable allocator does not pass record_stream() on.
    """
    global _installed
    if _installed is not None:
        return
    import torch

    if not torch.version.cuda or not hasattr(torch._C, "_cuda_customAllocator"):
        raise RuntimeError(
            f"this PyTorch, {torch.__version__}, is built without CUDA: install one that is "
            "built for it"
        )
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        path(), "uvmrust_torch_malloc", "uvmrust_torch_free"
    )
    calls, library = allocator.allocator(), ctypes.CDLL(path())
    for setter, function in _CALLS.items():
        if not hasattr(calls, setter):
            raise RuntimeError(
                f"PyTorch {torch.__version__} is too old: its allocators have no {setter}, so "
                "that work of other streams would not be waited for; take a later one"
            )
        address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
        getattr(calls, setter)(address)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise RuntimeError(
            "PyTorch has allocated on a GPU already: call uvmrust.torch.install() before "
            "anything that uses one"
        ) from error
    _installed = allocator


def stats():
    """What the allocator has done, in blocks and bytes: `uvmrust.stats()["allocator"]`."""
    return _native.stats()["allocator"]
