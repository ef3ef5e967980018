# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A real PyTorch with the allocator, as docs/discard-guide.md says to use it: the recipe
is taken from there. It runs on the stub libraries (pytorch.rs), where nothing happens in a
stream before somebody waits, so that what is reused too early is seen as wrong data; and on a
real GPU (scripts/gpu-check.sh), which has memory enough to discard nothing.

Arguments: the guide, and the allocator's library; or, in its place, a folder with the
Python package uvmrust, which is then used instead of the recipe. Prints what does not hold.
"""

import ctypes
import importlib.util
import os
import re
import sys
import warnings

import torch

SIZE = 3 << 20
guide, library = sys.argv[1:]
package = os.path.isdir(library)
stub = getattr(ctypes.CDLL(None), "stub_violations", None)
bad = False


def expect(holds, what):
    global bad
    if not holds:
        print("not so:", what)
        bad = True


def recipe():
    """The block of Python in the guide's section on PyTorch, with our library's path."""
    with open(guide, encoding="utf-8") as file:
        section = file.read().split("\n## PyTorch\n")[1].split("\n## ")[0]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1).replace(
        '"libuvmrust_torch.so"', repr(library))


def tensor(value, device="cuda:0"):
    new = torch.empty(SIZE, dtype=torch.uint8, device=device)
    new.fill_(value)
    return new


def is_all(value, data):
    return bool((data.cpu() == value).all())


def stats():
    """mallocs, reused, held, discarded and prefetched bytes"""
    out = (ctypes.c_uint64 * 5)()
    ctypes.CDLL(library).uvmrust_torch_stats(out)
    return list(out)


def recorded():
    """What a side stream still reads is not reused, although its tensor is gone."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    for step in range(1, 6):
        source = tensor(step)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copy = torch.empty(SIZE, dtype=torch.uint8, device="cuda:0")
            copy.copy_(source, non_blocking=True)
        source.record_stream(side)
        address = source.data_ptr()
        del source
        new = tensor(100 + step)
        expect(not stub or new.data_ptr() == address, "the memory is reused")
        main.synchronize()
        side.synchronize()
        with torch.cuda.stream(side):
            expect(is_all(step, copy), f"record_stream(): what the side stream read, {step}")
        expect(is_all(100 + step, new), f"what was written after it, {step}")
        copy.record_stream(main)
        del copy, new
    torch.cuda.synchronize()


def other_gpu():
    """A tensor of the second GPU is freed while the first is current."""
    for step in range(1, 4):
        old = tensor(step, "cuda:1")
        kept = tensor(50 + step, "cuda:0")
        del old
        new = tensor(10 + step, "cuda:1")
        torch.cuda.synchronize(1)
        torch.cuda.synchronize(0)
        expect(is_all(10 + step, new), f"the second GPU's tensor, {step}")
        expect(is_all(50 + step, kept), f"the first GPU's tensor, {step}")


def emptied():
    """torch.cuda.empty_cache() gives memory back."""
    del_me = tensor(1)
    del del_me
    held = stats()[2]
    torch.cuda.empty_cache()
    expect(held > 0 and stats()[2] == 0, f"empty_cache(): {held} held, then {stats()[2]}")


def by_hand():
    """uvmrust.discard(t) and prefetch(t): in the order of the current stream, and autograd
    is told."""
    kept = tensor(3)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy = torch.empty(SIZE, dtype=torch.uint8, device="cuda:0")
        copy.copy_(kept, non_blocking=True)
        version = kept._version
        expect(uvmrust.discard(kept), "discard() of a tensor")
        kept.fill_(4)
        uvmrust.prefetch(kept)
        expect(uvmrust.discard_and_prefetch(kept[: 2 << 20]), "discard_and_prefetch() of a part")
        kept[: 2 << 20].fill_(5)
    side.synchronize()
    expect(is_all(3, copy), "what was read before the discard")
    expect(is_all(5, kept[: 2 << 20]) and is_all(4, kept[2 << 20 :]), "what was written after it")
    expect(kept._version > version + 1, "the tensor's version")
    for view in (kept[::2], torch.empty(8)):
        try:
            uvmrust.discard(view)
            expect(False, "a view with gaps, or a tensor on the CPU, is refused")
        except (TypeError, ValueError):
            pass
    uvmrust.check()


def no_memory():
    """Where there is no memory PyTorch's own error is raised, and the program goes on."""
    for step in range(3):
        try:
            torch.empty(1 << 62, dtype=torch.uint8, device="cuda:0")
            expect(False, "a request of 4 EiB is refused")
        except torch.OutOfMemoryError as error:
            expect("CUDA out of memory. Tried to allocate" in str(error), f"the text: {error}")
        expect(is_all(step, tensor(step)), "a tensor after a refused one")


def left_out():
    """What would raise with any pluggable allocator is not done, and a warning says so."""
    for turn_on in (
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: torch.backends.cudnn.set_flags(_benchmark=True),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            turn_on()
        expect(len(caught) == 1 and not torch.backends.cudnn.benchmark, "cudnn.benchmark")
    name = "torch._inductor.cudagraph_trees"
    expect(name not in sys.modules, "install() does not import torch.compile")
    # Whoever only looks for it does not use up what waits for the import.
    expect(importlib.util.find_spec(name) is not None, "torch.compile is there")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = torch.compile(lambda one: one.fill_(6), backend="cudagraphs")
        for _ in range(2):
            expect(is_all(6, compiled(tensor(5))), "what torch.compile has made")
    said = [str(warning.message) for warning in caught]
    expect(name in sys.modules and sum("without CUDA graphs" in s for s in said) == 1, said)
    aligned(sys.modules[name])


def aligned(trees):
    """A model that Inductor has compiled gets aligned inputs, also without graphs, and what it
    writes gets to those that are not aligned."""

    def model(inputs):
        offsets.append([one.data_ptr() % 16 for one in inputs])
        for one in inputs:
            one.add_(1)
        inputs.clear()

    own, trees.get_input_idxs_to_check = trees.get_input_idxs_to_check, lambda *_: [0, 1]
    run = trees.cudagraphify_impl(model, [], (), device_index=0, mutated_input_idxs=(0,))
    first = torch.zeros(64)[1:]
    for step, written in enumerate((first, first[3:], first), 1):
        offsets, read = [], torch.zeros(64)[1:]
        run([written, read])
        expect(offsets == [[0, 0]], f"aligned inputs: {offsets}")
        expect(is_all(step, first[3:]) and is_all(0, read), f"what is written: {first}, {read}")
    trees.get_input_idxs_to_check = own


def told():
    """torch.cuda's own calls for statistics ask the allocator."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    one = torch.empty(16 << 20, dtype=torch.uint8, device="cuda:0")
    expect(torch.cuda.memory_allocated() == before + (16 << 20), "memory_allocated()")
    del one
    expect(torch.cuda.memory_allocated() == before, "memory_allocated(), after a free")
    expect(torch.cuda.max_memory_allocated() == before + (16 << 20), "max_memory_allocated()")
    expect(torch.cuda.memory_reserved() >= 16 << 20, "memory_reserved()")
    expect("Allocated memory" in torch.cuda.memory_summary(), "memory_summary()")
    torch.cuda.reset_accumulated_memory_stats()
    expect(torch.cuda.memory_stats()["allocated_bytes.all.freed"] == 0, "what was freed since")
    torch.cuda.set_per_process_memory_fraction(0.5)
    uvmrust.torch.trim(0)


# The first stream in a process makes PyTorch's pool of them.
if package:
    sys.path.insert(0, library)
    torch.backends.cudnn.benchmark = True
    import uvmrust
    import uvmrust.rmm
    import uvmrust.torch

    uvmrust.torch.install()
    library = uvmrust.rmm.library()
    by_hand()
    told()
    left_out()
    torch.cuda.empty_cache()
else:
    exec(recipe(), {})
recorded()
no_memory()
if torch.cuda.device_count() > 1:
    other_gpu()
emptied()
if stub:
    expect(stub() == 0, "nothing that is lazily discarded is used")
    expect(stats()[3] > 0, "something was discarded")
print("torch", torch.__version__, "stats", stats())
sys.exit(bad)
