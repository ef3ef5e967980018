/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * In front of uvm_va_block.c and uvm_pmm_sysmem.c: whom the host memory is charged to that an eviction takes.
 *
 * Upstream charges it to the memory cgroup of the process whose pages are evicted, which is not who needs the
 * GPU's memory. If that cgroup is full, Linux ends a process of it and the allocation fails; the eviction
 * with it, and then the GPU fault that it is for, and all others of that batch, of whichever process. A limit of one
 * tenant's so ends kernels of all. Here such memory is still charged to its owner, but nobody is ended for it,
 * and where it cannot be it is nobody's. It is as much as the owner had on the GPU, at most.
 *
 * uvm_va_block.c knows that it evicts, and uvm_pmm_sysmem.c allocates: a flag of upstream's word goes from one to the
 * other.
 */
#ifndef UVM_RUST_CHARGE_H
#define UVM_RUST_CHARGE_H

#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_pmm_sysmem.h"

#include "uvm_rust_fixes.h"

/* Beside upstream's uvm_cpu_chunk_alloc_flags_t, of which there are four. */
#define UVM_RUST_EVICTED (1 << 30)

/* The flags of managed memory, which is charged. Caller has set the cause of @context's migration. */
static inline uvm_cpu_chunk_alloc_flags_t uvm_rust_account(const uvm_va_block_context_t *context)
{
	if (uvm_rust_fix_charge && context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_EVICTION)
		return UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT | UVM_RUST_EVICTED;
	return UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;
}

/*
 * More flags for Linux: it reclaims memory of the cgroup, and ends no process. It ends none where the host has no
 * memory, either: that is for the second try, which is not charged.
 */
static inline gfp_t uvm_rust_charge_flags(uvm_cpu_chunk_alloc_flags_t flags)
{
	return flags & UVM_RUST_EVICTED ? __GFP_RETRY_MAYFAIL | __GFP_NOWARN : 0;
}

/* Whether to try again without a charge; @flags says so then. */
static inline bool uvm_rust_charge_nobody(uvm_cpu_chunk_alloc_flags_t *flags)
{
	if (!(*flags & UVM_RUST_EVICTED))
		return false;
	*flags &= ~(UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT | UVM_RUST_EVICTED);
	return true;
}

#endif
