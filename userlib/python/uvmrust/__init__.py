# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Discard and prefetch of unified memory (CUDA's managed memory) from Python.

    import uvmrust
    uvmrust.discard(scratch)            # nobody will read what stands there now
    uvmrust.prefetch(batch)             # to its GPU, ahead of need
    uvmrust.backend()                   # who discards on this machine, "none" if nobody does

Memory is anything whose bytes can be told: a PyTorch tensor on a GPU, an object with
`__cuda_array_interface__` (CuPy, Numba, RMM), a `cuda.core` Buffer. It has to be managed
memory; `uvmrust.torch.install()` makes PyTorch's so, `uvmrust.rmm.resource()` RMM's.

After a discard, a read gives nothing that a program may use until something is written:
docs/discard-guide.md has the rules, and what each driver promises.
"""

from . import _memory, _native
from ._native import Error, backend, check

__all__ = ["Error", "backend", "check", "discard", "discard_and_prefetch", "prefetch", "stats"]


def discard(*memory, lazy=False, stream=None):
    """Says that nobody will read what stands in `memory` until it is written again.

    It takes its turn in `stream`: after the work that is in it now, and before what comes
    later. Without `stream` that is PyTorch's current stream for a tensor, and the stream
    that `__cuda_array_interface__` names; what names none needs one. A stream is an object
    of PyTorch, CuPy or cuda.core, or CUDA's handle as an integer (0 or 1: the legacy
    default stream, 2: the thread's own). A default stream is that of the GPU which its object
    names, as those of PyTorch do, and else of the memory's.

    Only whole pages are discarded, and whole blocks of 2 MiB are what pays. `lazy=True` is
    cheaper, takes only whole blocks at multiples of 2 MiB, and leaves the rest as it is. Then
    the memory must be prefetched before it is used, also before it is written. It must be
    prefetched, too, before it is freed into a cache, such as CuPy's pool: the next owner would
    lose what it writes. The allocator of `uvmrust.torch` and `uvmrust.rmm` knows of it, and
    prefetches it itself.

    Returns True if it was done or is now in the stream. False: nobody discards here
    (`backend()` is "none"), and nothing has changed, which makes a program slower and not
    wrong. An error that shows only when the stream gets there is raised by `check()`.

    Raises `Error` for memory that is not managed, or a stream that is being captured into
    a graph which cannot hold it; ValueError for a view whose bytes lie between others';
    TypeError for what is no memory of a GPU, or has no stream.
    """
    groups = _memory.by_stream([_memory.to_discard(m) for m in memory], stream)

    def one(where, spans):
        return _native.discard(_memory.ranges(spans), bool(lazy), *where)

    return _each(groups.items(), one)


def _each(groups, call):
    """Calls with the key and the spans of each group, which says whether somebody discards.
    Autograd is told of what may be lost at once, as the next group may fail."""
    done = True
    for key, spans in groups:
        try:
            did = call(key, spans)
        except Error as error:
            if error.code not in _NOTHING_CHANGED:
                _memory.changed(spans)
            raise
        if did:
            _memory.changed(spans)
        done = did and done
    return done


# The codes in uvmrust.h of the errors after which a call in a stream has changed nothing:
# ENOTSUPPORTED, EINVALID, ENODEVICE, ECAPTURE.
_NOTHING_CHANGED = (-1, -2, -6, -9)


def prefetch(*memory, to=None, stream=None):
    """Brings `memory` to a GPU, or to the host, in the order of `stream` (see `discard`).

    `to` is the number of a GPU, a `torch.device` or its name, or "cpu" for the host.
    Without it, it is the GPU that the memory is of, or the current one where that is not
    known. All pages that the memory touches are moved, and what was lazily discarded can be
    used again behind it.

    Raises `Error` if the memory is not managed or there is no such GPU. After a lazy discard, `check()`
    tells of memory that is not managed, and of a prefetch that fails when the stream gets there.
    """
    spans = [_memory.to_prefetch(m) for m in memory]
    for (goal, where), some in _memory.by_goal(spans, to, stream):
        _native.prefetch(_memory.ranges(some), goal, *where)


def discard_and_prefetch(*memory, to=None, stream=None):
    """Makes `memory` ready for being written on a GPU, without a copy of what it holds.

    A lazy discard and the prefetch that it needs, in the order of `stream`: one call, which looks
    at the place before it discards. Where the prefetch is refused behind the discard, the contents are
    gone, and the memory is discarded once more, not lazily: a write is kept. If that fails as well,
    `check` tells it, and a write may be lost. Returns whether anybody discarded; the prefetch is asked
    for in any case.

    Raises what `discard` and `prefetch` raise. Memory of several streams or GPUs is several
    calls, of which some may be done when another is refused.
    """
    spans = [_memory.to_discard(m) for m in memory]

    def one(key, some):
        goal, where = key
        ranges = _memory.ranges(some)
        if _native.discard_and_prefetch(ranges, goal, *where):
            return True
        _native.prefetch(ranges, goal, *where)
        return False

    return _each(_memory.by_goal(spans, to, stream), one)


def stats():
    """What was done in this process, as a dictionary.

    `backend`: as `backend()`. `discard` and `prefetch`: `calls` of this module's functions
    that were taken, and the `bytes` that they named. `allocator`: what the allocator of
    `uvmrust.torch` and `uvmrust.rmm` has done, in blocks and bytes.
    """
    return {"backend": backend(), **_native.stats()}
