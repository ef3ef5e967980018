# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The arrays of other libraries on a real GPU: CuPy's and Numba's by __cuda_array_interface__,
cuda.core's buffers by their handles. Each part says whether it holds, or which library is missing.
"""

import sys
import traceback

import numpy

import gpu_checks
import uvmrust
from gpu_checks import expect

WORDS = 4 << 20


def refuses(what, call, *kinds):
    """Whether a call raises one of these."""
    try:
        call()
    except kinds as error:
        expect(True, f"{what}: {type(error).__name__}: {error}")
    except Exception as error:
        expect(False, f"{what}: {type(error).__name__}: {error}")
    else:
        expect(False, f"{what}: no error")


def cupy():
    import cupy as cp

    print("CuPy", cp.__version__)
    plain = cp.full(WORDS, 1, dtype=cp.int32)
    refuses("discard of CuPy's device memory", lambda: discarded_now(plain, cp), ValueError, OSError, RuntimeError)
    with cp.cuda.using_allocator(cp.cuda.malloc_managed):
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            array = cp.full(WORDS, 2, dtype=cp.int32)
            copy = array.copy()
            expect(uvmrust.discard(array, stream=stream), "discard() of a CuPy array")
            array.fill(3)
            uvmrust.prefetch(array, to="cpu", stream=stream)
            uvmrust.prefetch(array, stream=stream)
            expect(uvmrust.discard_and_prefetch(copy[: WORDS // 2], stream=stream), "discard_and_prefetch() of a part")
            copy[: WORDS // 2] = 4
        stream.synchronize()
        uvmrust.check()
        expect(bool((array == 3).all()), "CuPy: what was written after the discard")
        expect(bool((copy[: WORDS // 2] == 4).all()), "CuPy: what was written after the one with a prefetch")
        expect(bool((copy[WORDS // 2 :] == 2).all()), "CuPy: the other part is as it was")
        # The interface names the stream: CuPy's current one.
        print("the interface names stream", array.__cuda_array_interface__.get("stream"))
        with stream:
            expect(uvmrust.discard(array), "discard() in the stream that the interface names")
            array.fill(5)
        stream.synchronize()
        expect(bool((array == 5).all()), "CuPy: what was written after that")
        refuses("discard of every other word", lambda: uvmrust.discard(array[::2], stream=stream), ValueError)


def discarded_now(array, cp):
    uvmrust.discard(array, stream=cp.cuda.Stream.null)
    cp.cuda.runtime.deviceSynchronize()
    uvmrust.check()


def cuda_core():
    try:
        from cuda.core import Device, ManagedMemoryResource
    except ImportError:
        from cuda.core.experimental import Device, ManagedMemoryResource
    from cuda.bindings import driver
    import cuda.core

    print("cuda.core", cuda.core.__version__)
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    try:
        resource = ManagedMemoryResource()
    except TypeError:
        resource = ManagedMemoryResource(device)
    buffer = resource.allocate(4 * WORDS, stream=stream)
    base = int(buffer.handle)

    def set(value):
        (code,) = driver.cuMemsetD32Async(base, value, WORDS, driver.CUstream(int(stream.handle)))
        assert code == driver.CUresult.CUDA_SUCCESS, code

    set(1)
    expect(uvmrust.discard(buffer, stream=stream), "discard() of a Buffer of cuda.core's")
    set(2)
    uvmrust.prefetch(buffer, to="cpu", stream=stream)
    expect(uvmrust.discard_and_prefetch(buffer, to=0, stream=stream), "discard_and_prefetch() of a Buffer")
    set(3)
    host = numpy.zeros(WORDS, dtype=numpy.uint32)
    stream.sync()
    uvmrust.check()
    (code,) = driver.cuMemcpyDtoH(host.ctypes.data, base, 4 * WORDS)
    expect(code == driver.CUresult.CUDA_SUCCESS and bool((host == 3).all()), "cuda.core: what was written after that")
    buffer.close()


def numba():
    from numba import cuda
    import numba as library

    print("Numba", library.__version__)
    stream = cuda.stream()
    array = cuda.managed_array(WORDS, dtype=numpy.int32)
    array[:] = 1
    expect(uvmrust.discard(array, stream=stream), "discard() of a managed array of Numba's, in its stream")
    stream.synchronize()
    array[:] = 2
    uvmrust.prefetch(array, to=0, stream=stream)
    stream.synchronize()
    uvmrust.check()
    expect(bool((array == 2).all()), "Numba: what was written after the discard")


for part in cupy, cuda_core, numba:
    try:
        part()
    except ImportError as error:
        print(f"skipped: {part.__name__}: {error}")
    except Exception:
        expect(False, f"{part.__name__}() ends without an error")
        traceback.print_exc(file=sys.stdout)
print("the package is", uvmrust.__file__)
print("backend", uvmrust.backend(), "stats", uvmrust.stats())
sys.exit(gpu_checks.bad > 0)
