// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What today's driver does not tell, so that nobody looks for it, or takes a 0 for it.

/// Each a sentence for people.
pub(crate) const MISSING: &[&str] = &[
    "Host memory that UVM keeps for managed pages while their data are on a GPU: a process is told what is \
     resident on the host. While an SSD is attached, all host memory of all processes together is told. A process \
     whose address space has more than a million places of 2 MiB for managed memory is not told its part.",
    "Parts of chunks: what a process has on a GPU, and has discarded there, is told in chunks of 2 MiB. \
     What is allocated in less than 2 MiB shares chunks, and is in none of these; nor is what is discarded \
     in a chunk that holds something else.",
    "Prefetched pages that were never used: a GPU does not tell which of the pages that it has mapped it \
     reads. Told is what certainly was in vain, of blocks that were predicted of announced kernels and evicted \
     before their kernel began. Of the tree prefetcher it is told what it brought.",
    "Thrashing that UVM's own detector sees, page by page: it keeps no counts in a release build. Blocks that \
     come back soon after their eviction are told.",
    "How much a user may have on the SSD; what this one has, and how often somebody was refused, is told.",
    "Other users' processes, but to root: their counts, and which of them have UVM open.",
    "What was predicted of a process's announced kernels, but to root: it is in debugfs alone.",
    "Parts of a GPU (MIG): their processes are seen, by root and by their own user; nothing else \
     is told, and nothing at all with driver 580 and later.",
    "A GPU that no process has registered with UVM: it is not started for the sake of being shown.",
    "With NVIDIA's own module: everything, but who has UVM open, what NVML tells of memory, and with \
     the parameter uvm_enable_debug_procfs=1 what moved and faulted, of a whole GPU. With --tools, UVM's tools \
     interface tells what a process that this user may trace moves and faults, on all GPUs together, while \
     uvmtop looks; nothing of causes and evictions, nor what was before.",
];
