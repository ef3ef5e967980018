# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""RMM in managed memory whose free blocks are discarded.

    import rmm, uvmrust.rmm
    rmm.mr.set_current_device_resource(uvmrust.rmm.resource())

C++ programs include `uvmrust_rmm.hpp`, which is in the folder `uvmrust.rmm.include()`, and
link with the library `uvmrust.rmm.library()`.
"""

from . import _memory, _native
from ._library import include
from ._library import path as library

__all__ = ["include", "library", "resource"]


def resource(device=None):
    """A memory resource of RMM's for a GPU, by its number; without one, the current GPU.

    It is RMM's CallbackMemoryResource, so each call goes through Python; for many small
    allocations put a pool of RMM's on it. What RMM frees in another stream than the one of
    the allocation is waited for before it is used again.

    What is free waits in the stream of its allocation. Before that stream is destroyed, free all
    that was allocated in it, and call `uvmrust.torch.trim()`: CUDA gives the handle to another
    stream later, which would use the memory while work of the first still may.

    Needs an RMM whose streams have `__cuda_stream__`, as those of 26.10 have.
    """
    import rmm.mr

    if device is None:
        device = _native.current_device()

    def allocate(nbytes, stream):
        address = _native.allocate(nbytes, device, _memory.handle(stream))
        if not address:
            raise MemoryError(f"{nbytes} bytes of managed memory could not be had")
        return address

    def deallocate(address, nbytes, stream):
        _native.deallocate(address, nbytes, device, _memory.handle(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)
