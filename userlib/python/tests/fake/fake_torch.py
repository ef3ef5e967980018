# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Stands in for PyTorch where there is none: the part that `uvmrust` uses, by PyTorch's
names, with memory of the stub of CUDA.

The pluggable allocator does as PyTorch's does (torch/csrc/cuda/CUDAPluggableAllocator.cpp,
2.9): it keeps size, device and stream of each allocation, makes no device current for a
free, and does nothing for a function that was not set.
"""

import ctypes
import types

__version__ = "2.9.0+fake"
version = types.SimpleNamespace(cuda="12.8")
strided = "torch.strided"


class _Cudnn:
    """torch.backends.cudnn, whose flag has the function that sets it."""

    class _Flag:
        def __init__(self, setter):
            self.setter = setter

        def __get__(self, module, kind):
            return _Cudnn.on

        def __set__(self, module, value):
            self.setter(value)

    on = True

    def _set(value):
        _Cudnn.on = value

    benchmark = _Flag(_set)


_C = types.SimpleNamespace(
    _cuda_customAllocator=True,
    _set_cudnn_benchmark=_Cudnn._set,
    _get_cudnn_benchmark=lambda: _Cudnn.on,
)
backends = types.SimpleNamespace(cudnn=_Cudnn())

_current = None
_device = 0
_streams = {0: 0, 1: 0}


class _Allocator:
    def __init__(self, malloc, free):
        self.malloc, self.free = malloc, free
        self.record = self.reset = None
        self.known = {}

    def set_record_stream_fn(self, address):
        self.record = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)

    def set_reset_fn(self, address):
        self.reset = ctypes.CFUNCTYPE(None)(address)

    def set_memory_fraction_fn(self, address):
        self.fraction = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int)(address)

    # PyTorch's MempoolId_t is a pair, passed in two registers (userlib/tests/torch_pools.cpp).

    def set_begin_allocate_to_pool(self, address):
        number, pointer = ctypes.c_uint64, ctypes.c_void_p
        self.begin = ctypes.CFUNCTYPE(None, ctypes.c_int, number, number, pointer)(address)

    def set_end_allocate_to_pool_fn(self, address):
        number = ctypes.c_uint64
        self.end = ctypes.CFUNCTYPE(None, ctypes.c_int, number, number)(address)

    def set_release_pool(self, address):
        number = ctypes.c_uint64
        self.release = ctypes.CFUNCTYPE(None, ctypes.c_int, number, number)(address)

    def allocate(self, size):
        stream = _streams[_device]
        address = self.malloc(size, _device, stream)
        self.known[address] = (size, _device, stream)
        return address

    def delete(self, address):
        self.free(address, *self.known.pop(address))


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        malloc = ctypes.CFUNCTYPE(pointer, size, ctypes.c_int, pointer)((malloc, library))
        free = ctypes.CFUNCTYPE(None, pointer, size, ctypes.c_int, pointer)((free, library))
        self._allocator = _Allocator(malloc, free)

    def allocator(self):
        return self._allocator


used = False


def _change_current_allocator(allocator):
    global _current
    if used:
        raise RuntimeError("Can't swap an already initialized allocator")
    _current = allocator.allocator()


class Tensor:
    """A tensor of bytes on a GPU, with what the package asks of one."""

    layout = strided
    version = 0

    def __init__(self, shape, strides=None, base=None, device=None):
        self.shape = shape
        self._strides = strides or tuple(
            _product(shape[i + 1 :]) for i in range(len(shape))
        )
        self.device = device or types.SimpleNamespace(type="cuda", index=_device)
        self._base = base
        self._address = base._address if base else _current.allocate(_product(shape))

    def __del__(self):
        if self._base is None and hasattr(self, "_address"):
            _current.delete(self._address)

    def data_ptr(self):
        return self._address

    def element_size(self):
        return 1

    def stride(self):
        return self._strides

    def is_inference(self):
        return False

    def record_stream(self, stream):
        if _current.record:
            _current.record(self._address, stream.cuda_stream)


def _product(numbers):
    product = 1
    for n in numbers:
        product *= n
    return product


def _increment_version(tensor):
    tensor.version += 1


autograd = types.SimpleNamespace(
    graph=types.SimpleNamespace(increment_version=_increment_version)
)
memory = types.SimpleNamespace(
    CUDAPluggableAllocator=CUDAPluggableAllocator,
    change_current_allocator=_change_current_allocator,
    _get_device_index=lambda device, optional: _device if device is None else device,
)


def _current_stream(device=None):
    index = _device if device is None else device.index
    return types.SimpleNamespace(cuda_stream=_streams[index])


def _empty_cache():
    if _current.reset:
        _current.reset()


def memory_allocated(device=None):
    """As torch/cuda/memory.py makes it of the nested statistics, by the module's name."""
    return memory.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]


cuda = types.SimpleNamespace(
    memory=memory,
    current_stream=_current_stream,
    empty_cache=_empty_cache,
    is_initialized=lambda: True,
    memory_allocated=memory_allocated,
)
