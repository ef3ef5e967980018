# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Stands in for RMM where there is none: a resource of callbacks, as RMM 26.10 has it
(python/rmm/rmm/pylibrmm/memory_resource): it hands them bytes and a Stream that has
`__cuda_stream__`."""

import sys
import types


class Stream:
    def __init__(self, obj):
        self._obj = obj

    def __cuda_stream__(self):
        return self._obj.__cuda_stream__()


class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self._allocate, self._deallocate = allocate_func, deallocate_func

    def allocate(self, nbytes, stream):
        return self._allocate(nbytes, stream)

    def deallocate(self, ptr, nbytes, stream):
        self._deallocate(ptr, nbytes, stream)


mr = types.ModuleType("rmm.mr")
mr.CallbackMemoryResource = CallbackMemoryResource
sys.modules["rmm.mr"] = mr
