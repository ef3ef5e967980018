// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What today's driver does not tell, so that nobody looks for it, or takes a 0 for it.

/// Each a sentence for people.
pub(crate) const MISSING: &[&str] = &[
    "What a process has on the host, and on the SSD: the driver tells how many chunks of 2 MiB of a GPU \
     have pages of the process. What is allocated in less than 2 MiB shares chunks, and is in none of \
     these. Of a whole GPU it tells how many chunks are used, discarded, unused.",
    "Managed memory on the host, while no SSD is attached.",
    "Prefetch waste: what the tree prefetcher brought is counted, not what of it was never used. \
     Of announced kernels it is told how many were predicted right.",
    "Thrashing.",
    "Quotas: how much a user may have on the SSD; what this one has, and how often somebody was \
     refused, is told. There is none for GPU memory.",
    "Pages discarded by a process: chunks that hold nothing else are told, of the whole GPU.",
    "Other users' processes, but to root: their counts, and which of them have UVM open.",
    "What was predicted of a process's announced kernels, but to root: it is in debugfs alone.",
    "Parts of a GPU (MIG): their processes are seen, by root and by their own user; nothing else \
     is told, and nothing at all with driver 580 and later.",
    "A GPU that no process has registered with UVM: it is not started for the sake of being shown.",
    "With NVIDIA's own module: everything, but who has UVM open, what NVML tells of memory, and with \
     the parameter uvm_enable_debug_procfs=1 what moved and faulted, of a whole GPU. UVM's tools \
     interface would tell of a process to who may trace it (pidfd_getfd), and would keep the memory of a \
     process that has ended: it is not asked.",
];
