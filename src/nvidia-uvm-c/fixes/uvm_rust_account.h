/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of files of upstream's with objects that a process may make without end: they are charged to its memory cgroup.
 *
 * A range group, a range and its policies cost a process nothing but a call, and a va_block not even a page. Upstream charges
 * none of them: a process in a cgroup could take all of the host's memory with them. What belongs to a va_block besides is
 * allocated while others evict it, and is left out. So is what a kernel thread makes for a GPU's fault.
 */
#ifndef UVM_RUST_ACCOUNT_H
#define UVM_RUST_ACCOUNT_H

#include <linux/slab.h>

#include "uvm_common.h"
#include "uvm_linux.h"

#include "uvm_rust_fixes.h"

/* Whether upstream's cache of this name is of such objects. */
static inline bool uvm_rust_is_accounted(const char *name)
{
	static const char *const begins[] = {
		"uvm_va_block_t", "uvm_va_block_wrapper_t", "uvm_va_range_", "uvm_vma_wrapper_t", "uvm_range_group_", "uvm_va_policy_node_t",
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(begins); i++) {
		if (!strncmp(name, begins[i], strlen(begins[i])))
			return uvm_rust_fix_charge;
	}
	return false;
}

static inline struct kmem_cache *uvm_rust_cache(const char *name, unsigned int size)
{
	if (!uvm_rust_is_accounted(name))
		return nv_kmem_cache_create(name, size, 0);
	/* Like upstream's, it shares no memory with another cache. */
	return kmem_cache_create(name, size, 0, SLAB_ACCOUNT, nv_kmem_ctor_dummy);
}

#undef NV_KMEM_CACHE_CREATE
#define NV_KMEM_CACHE_CREATE(name, type)	uvm_rust_cache(name, sizeof(type))

#endif
