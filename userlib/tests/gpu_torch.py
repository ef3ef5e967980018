# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the Python package does for a real PyTorch on a real GPU: statistics, discard and
prefetch of tensors, record_stream, graphs and their pools, empty_cache. Each part says
whether it holds; one that fails does not stop the others.
"""

import sys
import traceback

import torch

import gpu_checks
import uvmrust
import uvmrust.torch
from gpu_checks import expect

MIB = 1 << 20


def tensor(mib, value):
    return torch.full((mib * MIB // 4,), value, dtype=torch.int32, device="cuda")


def told():
    """The numbers of torch.cuda are this allocator's."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    one = tensor(16, 1)
    expect(torch.cuda.memory_allocated() == before + 16 * MIB, "memory_allocated()")
    del one
    expect(torch.cuda.memory_allocated() == before, "memory_allocated(), after a free")
    expect(torch.cuda.max_memory_allocated() >= before + 16 * MIB, "max_memory_allocated()")
    expect(torch.cuda.memory_reserved() >= 16 * MIB, "memory_reserved()")
    expect("Allocated memory" in torch.cuda.memory_summary(), "memory_summary()")


def by_hand():
    """Discards and prefetches of tensors, in a stream."""
    kept, copy = tensor(16, 3), torch.empty(4 * MIB, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy.copy_(kept, non_blocking=True)
        expect(uvmrust.discard(kept), "discard() of a tensor")
        kept.fill_(4)
        uvmrust.prefetch(kept, to="cpu")
        uvmrust.prefetch(kept)
        half = kept[: 2 * MIB]
        expect(uvmrust.discard_and_prefetch(half), "discard_and_prefetch() of a part")
        half.fill_(5)
        expect(uvmrust.discard(copy[2 * MIB :], lazy=True), "discard(), lazy")
        uvmrust.prefetch(copy[2 * MIB :])
        copy[2 * MIB :].fill_(6)
    side.synchronize()
    expect(bool((copy[: 2 * MIB] == 3).all()), "what was read before the discard")
    expect(bool((copy[2 * MIB :] == 6).all()), "what was written after the lazy one")
    # Brought to the host and back since, and never read before that.
    expect(bool((kept[2 * MIB :] == 4).all()), "what was written after the eager one")
    expect(bool((half == 5).all()), "what was written after the one with a prefetch")
    # In the legacy default stream, which CUDA's own calls refuse.
    expect(uvmrust.discard(kept), "discard() in the default stream")
    kept.fill_(7)
    expect(bool((kept == 7).all()), "what was written after that")
    uvmrust.check()


def recorded():
    """What a side stream still reads is not given out again, although its tensor is gone."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    right = True
    for step in range(1, 9):
        source = tensor(16, step)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            copy = source.clone()
        source.record_stream(side)
        del source
        new = tensor(16, 100 + step)
        main.synchronize()
        side.synchronize()
        right &= bool((copy == step).all()) and bool((new == 100 + step).all())
        copy.record_stream(main)
    expect(right, "record_stream()")


def graphs():
    """A captured step gives what the step gives, and its pool is given back."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    model, x = model.cuda(), torch.randn(512, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = model(x)
    right = True
    for step in range(5):
        x.normal_()
        graph.replay()
        with torch.no_grad():
            right &= torch.allclose(y, model(x), rtol=1e-3, atol=1e-4)
    expect(right, "a graph's results, 5 replays")
    captured = torch.cuda.memory_reserved()
    del y
    graph.reset()
    del graph
    torch.cuda.empty_cache()
    after = torch.cuda.memory_reserved()
    print(f"reserved: {before} before, {captured} with the graph, {after} after it")
    expect(after <= captured, "the graph's memory is given back")


def discards_in_graphs():
    """A discard in a capture is a node of the graph."""
    scratch, out = tensor(8, 1), tensor(8, 0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scratch.fill_(9)
        out.copy_(scratch)
        uvmrust.discard(scratch)
    for _ in range(3):
        out.zero_()
        graph.replay()
    torch.cuda.synchronize()
    uvmrust.check()
    expect(bool((out == 9).all()), "a discard in a graph, 3 replays")


def emptied():
    """What is free goes back to the system."""
    one = tensor(32, 1)
    del one
    held = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    rest = torch.cuda.memory_reserved()
    expect(rest <= held - 32 * MIB, f"empty_cache(): {held} reserved, then {rest}")
    uvmrust.torch.trim(0)


uvmrust.torch.install()
print("PyTorch", torch.__version__, "backend", uvmrust.backend())
for part in told, by_hand, recorded, graphs, discards_in_graphs, emptied:
    try:
        part()
        torch.cuda.synchronize()
    except Exception:
        expect(False, f"{part.__name__}() ends without an error")
        traceback.print_exc(file=sys.stdout)
print("backend", uvmrust.backend(), "stats", uvmrust.stats(), uvmrust.torch.stats(0))
sys.exit(gpu_checks.bad > 0)
