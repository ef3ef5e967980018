/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where versions of upstream differ by a name or an argument. The seam is written in the names of 550;
 * each header below, and each other uvm_rust_on_*.h, is there once for each way in which upstream has its
 * subject: bases/FACT/ has that of a tree where FACT is so (scripts/base.sh), bases/550/ that of 550.
 */
#ifndef UVM_RUST_COMPAT_H
#define UVM_RUST_COMPAT_H

#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_version.h"
#include "uvm_rust_on_events.h"
#include "uvm_rust_on_eviction.h"
#include "uvm_rust_on_gpus.h"
#include "uvm_rust_on_moves.h"
#include "uvm_rust_on_nodes.h"
#include "uvm_rust_on_support.h"

/* Is this GPU counted? Faults of parts of a GPU (MIG) come to one bottom half, which in 580 is the parent's. */
static inline bool uvm_rust_counts(uvm_gpu_t *gpu)
{
#ifdef UVM_RUST_NATIVE
	return !gpu->parent->smc.enabled;
#else
	return true;
#endif
}

#endif
