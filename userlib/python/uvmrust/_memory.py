# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Where an object of Python's is in a GPU's memory, and in which stream it is used.

What is known of `__cuda_array_interface__` is from its description, version 3, in Numba's
documentation ("CUDA Array Interface"); of streams, from cuda.core's `__cuda_stream__`
protocol.
"""

import math
import sys

from . import _native

# DLPack's kDLCUDA and kDLCUDAManaged: dlpack.h, DLDeviceType.
_DLPACK_CUDA = (2, 13)


class Span:
    """Bytes [base, base + length); the GPU's number and the stream's handle, or None; and the
    object that was given."""

    def __init__(self, base, length, device=None, stream=None):
        self.base, self.length, self.device, self.stream = base, length, device, stream
        self.given = None


def _extent(shape, strides, item):
    """The offsets from the pointer of the first byte and of the one behind the last, and
    whether each byte between belongs to one element. `strides` are in bytes, or None for a
    C-contiguous array; `item` is an element's bytes."""
    if 0 in shape:
        return 0, 0, True
    if strides is None:
        return 0, math.prod(shape) * item, True
    sides = [(abs(stride), stride, n) for n, stride in zip(shape, strides) if n != 1]
    low = sum(stride * (n - 1) for _, stride, n in sides if stride < 0)
    high = sum(stride * (n - 1) for _, stride, n in sides if stride > 0) + item
    expected = item
    for size, _, n in sorted(sides):
        if size != expected:
            return low, high, False
        expected *= n
    return low, high, True


def _device_of(obj):
    """The number of the GPU that an object is of, or None if it does not say. It is only
    needed for default streams and as the goal of a prefetch."""
    try:
        if hasattr(obj, "__dlpack_device__"):
            kind, device = obj.__dlpack_device__()
            if int(kind) in _DLPACK_CUDA:
                return int(device)
        device = getattr(obj, "device_id", None)
    except Exception:  # Whatever the library raises that cannot tell: cuda.core asks CUDA.
        return None
    return device if isinstance(device, int) and device >= 0 else None


def _torch_tensor(obj):
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(obj, torch.Tensor) else None


def _of_torch(torch, tensor):
    if tensor.device.type != "cuda" or tensor.layout != torch.strided:
        raise TypeError(
            f"a tensor on {tensor.device} with layout {tensor.layout}: only dense tensors on a "
            "GPU are in unified memory"
        )
    item = tensor.element_size()
    strides = [stride * item for stride in tensor.stride()]
    low, high, dense = _extent(list(tensor.shape), strides, item)
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    base = tensor.data_ptr() + low if high > low else 0
    return Span(base, high - low, tensor.device.index, stream), dense, False


def _of_interface(obj, interface):
    if interface.get("mask") is not None:
        raise TypeError("a masked array: give its data and its mask one by one")
    kind, item = interface["typestr"][1], interface["typestr"][2:]
    if not item.isdigit() or kind in "tO":
        raise TypeError(f"elements of type {interface['typestr']} have no known size")
    item = int(item) * (4 if kind == "U" else 1)
    pointer, read_only = interface["data"]
    low, high, dense = _extent(interface["shape"], interface.get("strides"), item)
    base = pointer + low if high > low else 0
    return Span(base, high - low, _device_of(obj), interface.get("stream")), dense, read_only


def _of(obj):
    """The span of an object, whether it has every byte of it, and whether it is read-only."""
    torch = _torch_tensor(obj)
    if torch is not None:
        return _of_torch(torch, obj)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(obj, interface)
    # cuda.core's Buffer. Its handle is None once it is closed.
    handle, size = getattr(obj, "handle", None), getattr(obj, "size", None)
    if handle is not None and isinstance(size, int):
        return Span(int(handle), size, _device_of(obj)), True, False
    raise TypeError(
        f"a {type(obj).__name__} is no memory of a GPU: it has no __cuda_array_interface__, "
        "and is neither a tensor of PyTorch's nor an open Buffer of cuda.core"
    )


def to_discard(obj):
    """The span of an object whose bytes may be lost."""
    span, dense, read_only = _of(obj)
    if read_only:
        raise ValueError("read-only memory is not discarded: give the array that owns it")
    if not dense:
        raise ValueError(
            "this view's bytes lie between others', which would be lost with them: discard "
            "the whole array, or contiguous parts of it"
        )
    span.given = obj
    return span


def to_prefetch(obj):
    """The span of an object, with what lies between its bytes."""
    return _of(obj)[0]


def changed(spans):
    """Tells autograd, so that a backward pass which needs what is lost fails by its name."""
    for span in spans:
        torch = _torch_tensor(span.given)
        if torch is not None and not span.given.is_inference():
            torch.autograd.graph.increment_version(span.given)


def ranges(spans):
    """(first byte, bytes) of each."""
    return [(span.base, span.length) for span in spans]


def handle(stream):
    """CUDA's handle of a stream, as a number."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, number = protocol() if callable(protocol) else protocol
        if version != 0:
            raise TypeError(f"__cuda_stream__ of version {version}; this knows version 0")
        return int(number)
    for name in ("cuda_stream", "ptr"):
        number = getattr(stream, name, None)
        if isinstance(number, int):
            return number
    raise TypeError(f"a {type(stream).__name__} is no stream: give the library's own, or its handle")


# The handles that mean another stream on each GPU: null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
_SPECIAL = (0, 1, 2)


def _device_of_stream(stream):
    """The number of the GPU that a stream's object is of, or None if it does not say: PyTorch's has
    a `device` with an `index`, CuPy's a `device_id`, which is -1 for streams of whichever GPU is current."""
    try:
        device = getattr(getattr(stream, "device", None), "index", None)
        if device is None:
            device = getattr(stream, "device_id", None)
    except Exception:  # As in `_device_of`.
        return None
    return device if isinstance(device, int) and device >= 0 else None


def by_stream(spans, stream):
    """Lists of spans by the stream and GPU in whose order they are to be done. The GPU is the one of
    the memory, unless a default stream's object names another, whose kernels it then comes behind."""
    given = None if stream is None else handle(stream)
    named = _device_of_stream(stream) if given in _SPECIAL else None
    groups = {}
    for span in spans:
        number = span.stream if given is None else given
        if number is None:
            raise TypeError(
                "nothing says in which stream this memory is used: name it, stream=..., or "
                "stream=0 for the legacy default stream"
            )
        if span.length:
            device = span.device if named is None else named
            groups.setdefault((number, device), []).append(span)
    return groups


def by_goal(spans, to, stream):
    """Pairs of (goal, (stream, GPU)) and spans, all of which are known before anything is done."""
    goals = {}
    for span in spans:
        goals.setdefault(goal(to, span), []).append(span)
    found = {place: by_stream(some, stream) for place, some in goals.items()}
    return [((place, where), some) for place in found for where, some in found[place].items()]


def goal(to, span):
    """The number of the GPU to prefetch to, or None for the host."""
    if to is None:
        return _native.current_device() if span.device is None else span.device
    if isinstance(to, int) and not isinstance(to, bool):
        return to
    kind, _, number = str(to).partition(":")
    if kind in ("cpu", "host") and not number:
        return None
    if kind == "cuda" and (number.isdigit() or not number):
        return int(number) if number else _native.current_device()
    raise ValueError(f"{to!r} is no place: a GPU's number, 'cuda:1', or 'cpu'")
