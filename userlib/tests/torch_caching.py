# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Has PyTorch's own caching allocator play recordings (record_allocations.py), on the stub
libraries (pytorch.rs) or on a real GPU that has room for all. Nothing is written to the memory.

Arguments: the recordings. Prints of each: its name, calls of cudaMalloc, the most bytes reserved.
"""

import os
import sys

import torch


def play(path):
    held = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line[0] == "+":
                held.append(torch.cuda.memory.caching_allocator_alloc(int(line)))
            elif line[0] == "-":
                torch.cuda.memory.caching_allocator_delete(held[int(line[1:])])
                held[int(line[1:])] = None
    stats = torch.cuda.memory_stats()
    for address in filter(None, held):
        torch.cuda.memory.caching_allocator_delete(address)
    return stats


torch.cuda.init()
for path in sys.argv[1:]:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats().get("num_device_alloc", 0)
    assert not torch.cuda.memory_reserved()
    stats = play(path)
    name = os.path.splitext(os.path.basename(path))[0]
    print(name, stats["num_device_alloc"] - before, stats["reserved_bytes.all.peak"])
