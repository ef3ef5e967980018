# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""PyTorch in managed memory: a model may be larger than the GPU, and what PyTorch frees is
discarded, so that it is not copied around.

    import torch, uvmrust.torch
    uvmrust.torch.install()             # before the first use of the GPU

Nothing else in the program changes. `uvmrust.torch.stats()` says what came of it.
"""

import ctypes
import warnings

from . import _native, _without
from ._library import path

# The names under which PyTorch's pluggable allocator is given its functions, and ours.
# Without record_stream, Tensor.record_stream() would do nothing, and what a side stream
# still reads would be discarded.
_NEEDED = {
    "set_record_stream_fn": "uvmrust_torch_record_stream",
    "set_reset_fn": "uvmrust_torch_empty_cache",
}
# Of the pools of graphs all three are set or none: a pool that only begins stays for ever.
_POOLS = {
    "set_begin_allocate_to_pool": "uvmrust_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "uvmrust_torch_end_pool",
    "set_release_pool": "uvmrust_torch_release_pool",
}
_NO_POOLS = "memory of CUDA graphs stays allocated until the process ends"
_FRACTION = {"set_memory_fraction_fn": "uvmrust_torch_set_fraction"}
_NO_FRACTION = "torch.cuda.set_per_process_memory_fraction() does nothing"

_installed = None


def install():
    """Makes PyTorch allocate in managed memory, with discard of what is free.

    It has to come before the program's first use of the GPU, and may be called again.
    `torch.cuda.empty_cache()`, `Tensor.record_stream()`, `torch.cuda.memory_stats()` and what
    is made of it, `reset_peak_memory_stats()`, `reset_accumulated_memory_stats()` and the pools
    of graphs work as without, and `torch.OutOfMemoryError` is raised where there is no memory. After
    `torch.cuda.set_per_process_memory_fraction()` no request fails for that, but what is
    free is discarded when more than that part of the GPU may hold data.

    Three things are other than without:

    - A tensor that `Tensor.record_stream()` was called for has the stream of its allocation
      wait, when it is freed, for the other stream. PyTorch's own allocator asks whether that is
      done, and lets the stream go on. So a program hangs whose other stream waits for what it
      does only after the first is done.
    - While the GPU's memory is short, a new tensor is usable in the order of the stream that was
      current at its allocation. Another stream has to wait for that one even if nothing was put
      into it since the program last waited for the GPU: else what it writes may be lost.
    - The stream of a `torch.cuda.ExternalStream` is destroyed only after all tensors that were
      allocated in it, or recorded for it, are gone, and `torch.cuda.empty_cache()` was called
      after that.

    Two are left out, with a warning: `torch.backends.cudnn.benchmark` stays False, and
    `torch.compile` goes on without CUDA graphs (`mode="reduce-overhead"`, `"max-autotune"`,
    `backend="cudagraphs"`). `torch.cuda.graph()` works.

    Of PyTorch's own allocator alone are snapshots and the history of memory,
    `torch.cuda.MemPool` outside of captures, `expandable_segments`,
    `get_per_process_memory_fraction()`, tensors of a GPU that `torch.multiprocessing` passes to
    other processes, and TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK. `torch.accelerator`'s calls
    for memory tell of that one, which is not used: 0, and its resets raise.

    Warns of what this PyTorch passes to no other allocator, and what follows from that.

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
    for setter in _NEEDED:
        if not hasattr(calls, setter):
            raise RuntimeError(
                f"PyTorch {torch.__version__} is too old: its allocators have no {setter}, so "
                "that work of other streams would not be waited for; take a later one"
            )
    for setters, without in ((_NEEDED, ""), (_POOLS, _NO_POOLS), (_FRACTION, _NO_FRACTION)):
        lacks = [setter for setter in setters if not hasattr(calls, setter)]
        if lacks:
            said = f"the allocators of PyTorch {torch.__version__} have no {', '.join(lacks)}"
            warnings.warn(f"{said}: {without}", RuntimeWarning, stacklevel=2)
            continue
        for setter, function in setters.items():
            address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
            getattr(calls, setter)(address)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise RuntimeError(
            "PyTorch has allocated on a GPU already: call uvmrust.torch.install() before "
            "anything that uses one"
        ) from error
    _tell(torch)
    _without.leave_out(torch)
    _installed = allocator


def stats(device=None):
    """What the allocator has done, in blocks and bytes: in all, as
    `uvmrust.stats()["allocator"]`, or with a GPU's number for that one.

    Of one GPU there is more: `short` says whether its memory is short, so that what becomes
    free is discarded; `live_bytes` may hold data, and `budget_bytes` of these fit.
    """
    return _native.stats()["allocator"] if device is None else _native.device_stats(device)


def trim(keep=0):
    """Gives free memory back to the system until no more than `keep` bytes of it are cached.
    With 0 this is `torch.cuda.empty_cache()`. It waits for the GPU."""
    _native.trim(keep)


# PyTorch's names of what is counted in numbers that go up and down, and ours.
_METRICS = {
    "allocation": "blocks",
    "active": "blocks",
    "segment": "segments",
    "allocated_bytes": "allocated_bytes",
    "active_bytes": "allocated_bytes",
    "requested_bytes": "requested_bytes",
    "reserved_bytes": "reserved_bytes",
    "inactive_split": None,
    "inactive_split_bytes": None,
}


# What is counted since the last reset_accumulated_memory_stats(), where the statistics have it.
_COUNTS = ("retries", "failures")
_SUMS = ("allocated", "freed")


def _accumulated(ours):
    """The part of a GPU's statistics that only grows, with 0 for what was before a reset."""
    counts = {name: ours[name] for name in _COUNTS}
    for metric in filter(None, set(_METRICS.values())):
        counts.update({(metric, name): ours[metric][name] for name in _SUMS})
    return counts


# By device, at its last reset.
_before = {}


def _since(device):
    """A GPU's statistics, with what grows since the last reset."""
    ours = _native.device_stats(device)
    for name, before in _before.get(device, {}).items():
        of, name = name if isinstance(name, tuple) else (None, name)
        (ours[of] if of else ours)[name] -= before
    return ours


def _nested(device):
    """A GPU's statistics, as `torch.cuda.memory_stats_as_nested_dict()` has them. Small and
    large requests are not counted apart: both are 0, as is what is not counted at all."""
    ours, all_time = _since(device), _native.device_stats(device)
    zero = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    nested = {
        name: {
            "all": dict(ours[metric]) if metric else dict(zero),
            "small_pool": dict(zero),
            "large_pool": dict(zero),
        }
        for name, metric in _METRICS.items()
    }
    for name in ("oversize_allocations", "oversize_segments"):
        nested[name] = dict(zero)
    nested.update(
        num_alloc_retries=ours["retries"],
        num_ooms=ours["failures"],
        num_sync_all_streams=0,
        num_device_alloc=all_time["segments"]["allocated"],
        num_device_free=all_time["segments"]["freed"],
        max_split_size=-1,
    )
    return nested


def _tell(torch):
    """Lets `torch.cuda.memory_stats()`, and what PyTorch makes of it, ask this allocator: a
    pluggable one has no way to tell."""
    memory = torch.cuda.memory

    def index(device):
        return memory._get_device_index(device, optional=True)

    def memory_stats_as_nested_dict(device=None):
        return _nested(index(device)) if torch.cuda.is_initialized() else {}

    def reset_peak_memory_stats(device=None):
        if torch.cuda.is_initialized():
            _native.reset_peaks(index(device))

    def reset_accumulated_memory_stats(device=None):
        if torch.cuda.is_initialized():
            _before[index(device)] = _accumulated(_native.device_stats(index(device)))

    for module in (memory, torch.cuda):
        module.memory_stats_as_nested_dict = memory_stats_as_nested_dict
        module.reset_peak_memory_stats = reset_peak_memory_stats
        module.reset_accumulated_memory_stats = reset_accumulated_memory_stats
