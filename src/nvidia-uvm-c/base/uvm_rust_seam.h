/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the files of the seam have in common; with upstream's types. */
#ifndef UVM_RUST_SEAM_H
#define UVM_RUST_SEAM_H

#include "uvm_gpu.h"

/*
 * A call of the fault service for @gpu ended, having sent @replays. Caller holds
 * the GPU's replayable-fault service lock.
 */
void uvm_rust_served(uvm_gpu_t *gpu, __u64 replays);

/* Where our files in debugfs are; NULL without statistics. */
struct dentry;
struct dentry *uvm_rust_debug_dir(void);

#endif
