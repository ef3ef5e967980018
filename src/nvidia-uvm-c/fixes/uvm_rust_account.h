/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of files of upstream's with objects that a process may make without end: they are charged to its memory cgroup.
 *
 * A range group and a range cost a process nothing but a call, and a va_block not even a page. Upstream charges none of them: a
 * process in a cgroup could take all of the host's memory with them. Left out is
 *   a policy of ordinary memory, which is made with the lock of its va_block held: to make room in the cgroup, Linux may unmap a
 *     page of that va_block, and that waits for the lock;
 *   what belongs to a va_block besides, which is allocated while others evict it;
 *   a vma_wrapper: there is one for each vm_area_struct, which Linux charges, and which are bounded (vm.max_map_count);
 *   what a kernel thread makes for a GPU's fault.
 *
 * munmap(), mprotect() and madvise() of a part split a range, its va_block and the range's part of a range group. Upstream destroys the
 * ranges where that fails, with what is in them, or asserts that it does not. So these are had where Linux refuses the charge, too: it has ended
 * no process to make room then, as where none of the cgroup's may be. A range group itself is refused.
 *
 * Such a call holds locks of its VA space, for which others wait: it waits for memory.high when it has let them go.
 */
#ifndef UVM_RUST_ACCOUNT_H
#define UVM_RUST_ACCOUNT_H

#include <linux/slab.h>

#include "uvm_common.h"
#include "uvm_linux.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_over_high.h"

/* Whether upstream's variable of this name has a cache of what begins so. */
static inline bool uvm_rust_is_of(const char *cache, const char *begin)
{
	return !strncmp(cache, begin, strlen(begin));
}

/* Zeroed memory from @cache, which upstream calls @name. */
static inline void *uvm_rust_zalloc(struct kmem_cache *cache, const char *name, gfp_t flags)
{
	bool is_charged = uvm_rust_fix_charge && (uvm_rust_is_of(name, "g_uvm_va_range_") || uvm_rust_is_of(name, "g_uvm_range_group_") ||
						  !strcmp(name, "g_uvm_va_block_cache"));
	void *object = NULL;

	if (is_charged) {
		unsigned int before = uvm_rust_forget_over();

		object = nv_kmem_cache_zalloc(cache, flags | __GFP_ACCOUNT);
		uvm_rust_remember_over(before, true);
	}
	return object || (is_charged && !strcmp(name, "g_uvm_range_group_cache")) ? object : nv_kmem_cache_zalloc(cache, flags);
}

#define nv_kmem_cache_zalloc(cache, flags)	uvm_rust_zalloc(cache, #cache, flags)

#endif
