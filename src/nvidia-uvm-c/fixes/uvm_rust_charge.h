/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c and uvm_pmm_sysmem.c: whom the host memory is charged to that an eviction takes.
 *
 * Upstream charges it to the memory cgroup of the process whose pages are evicted, which is not who needs the
 * GPU's memory. If that cgroup is full, Linux ends a process of it. If that makes no room the allocation fails, the
 * eviction with it, and then the GPU fault that it is for, and all others of that batch, of whichever process. A limit of
 * one tenant's so ends kernels of all. Here such memory is charged to its owner over the owner's limit: no process of
 * the cgroup is ended for an eviction, and what the owner takes next by itself finds the cgroup full.
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

/* Beside upstream's uvm_cpu_chunk_alloc_flags_t, of which there are four at most. */
#define UVM_RUST_EVICTED (1 << 30)

/* The flags of managed memory, which is charged. Caller has set the cause of @context's migration. */
static inline uvm_cpu_chunk_alloc_flags_t uvm_rust_account(const uvm_va_block_context_t *context)
{
	if (uvm_rust_fix_charge && context->make_resident.cause == UVM_MAKE_RESIDENT_CAUSE_EVICTION)
		return UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT | UVM_RUST_EVICTED;
	return UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;
}

/*
 * More flags for Linux. By __GFP_NORETRY the cgroup's memory is reclaimed once or twice and none of its processes is ended; by
 * __GFP_HIGH the charge goes over the limit then (try_charge_memcg()).
 */
static inline gfp_t uvm_rust_charge_flags(uvm_cpu_chunk_alloc_flags_t flags)
{
	return flags & UVM_RUST_EVICTED ? __GFP_HIGH | __GFP_NORETRY | __GFP_NOWARN : 0;
}

/* Whether to try again as upstream does, as the host itself is short of memory; @flags says so then. */
static inline bool uvm_rust_charge_as_upstream(uvm_cpu_chunk_alloc_flags_t *flags)
{
	if (!(*flags & UVM_RUST_EVICTED))
		return false;
	*flags &= ~UVM_RUST_EVICTED;
	return true;
}

#endif
