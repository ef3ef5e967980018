// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The memory that the notifier of ordinary memory (uvm_hmm.c) works with.
 *
 * Linux calls the notifier when it takes pages back: on munmap(), but also when it reclaims
 * memory, having none. Upstream's allocates a va_block context, 10 KB, and without one returns
 * as if all were done; the GPU then keeps its mapping of a page that goes to somebody else. It
 * cannot refuse, nor may it wait for reclaim, which may be what has called it. So some contexts
 * are kept, from the driver's start.
 *
 * When these are in use, too, it waits for one, or for memory. Each is given back once its
 * notifier has had its va_block's lock and the GPU has answered. A thread that holds such a lock
 * may wait for reclaim (upstream allocates under it), and reclaim for a notifier; it takes as
 * many of these at a time as there are contexts, with no free memory at all, to stand still.
 * Upstream's notifiers need no more than one to do so, as they wait for the same locks.
 */
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "uvm_common.h"
#include "uvm_test.h"
#include "uvm_va_block.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"

static uint uvm_rust_test_no_context;
module_param(uvm_rust_test_no_context, uint, 0600);
MODULE_PARM_DESC(uvm_rust_test_no_context,
		 "For tests, with uvm_enable_builtin_tests=1: while not 0, memory notifiers find no free memory (default 0)");

static uvm_va_block_context_t *try_alloc(struct mm_struct *mm)
{
	if (unlikely(READ_ONCE(uvm_rust_test_no_context)) && uvm_enable_builtin_tests)
		return NULL;
	return uvm_va_block_context_alloc(mm);
}

/* More than there are CPUs to reclaim on in most machines; 10 KB each. */
#define KEPT 8

/* Under kept_lock, a leaf: those that are not in use, the first kept_count. */
static uvm_va_block_context_t *kept[KEPT];
static uint kept_count;
static DEFINE_SPINLOCK(kept_lock);

static uvm_va_block_context_t *take_kept(void)
{
	uvm_va_block_context_t *context = NULL;

	spin_lock(&kept_lock);
	if (kept_count)
		context = kept[--kept_count];
	spin_unlock(&kept_lock);
	return context;
}

/* False if there are enough. */
static bool keep(uvm_va_block_context_t *context)
{
	bool kept_it;

	spin_lock(&kept_lock);
	kept_it = kept_count < KEPT;
	if (kept_it)
		kept[kept_count++] = context;
	spin_unlock(&kept_lock);
	return kept_it;
}

NV_STATUS uvm_rust_notifier_init(void)
{
	uint i;

	for (i = 0; i < KEPT; i++) {
		uvm_va_block_context_t *context = uvm_va_block_context_alloc(NULL);

		/* The caller's exit frees the others. */
		if (!context)
			return NV_ERR_NO_MEMORY;
		keep(context);
	}
	return NV_OK;
}

void uvm_rust_notifier_exit(void)
{
	uvm_va_block_context_t *context;

	while ((context = take_kept()))
		uvm_va_block_context_free(context);
}

uvm_va_block_context_t *uvm_rust_notifier_context(struct mm_struct *mm)
{
	uvm_va_block_context_t *context;

	for (;;) {
		context = try_alloc(mm);
		if (context || !uvm_rust_fix_notifier)
			return context;
		context = take_kept();
		if (context) {
			uvm_va_block_context_init(context, mm);
			return context;
		}
		schedule_timeout_uninterruptible(1);
	}
}

void uvm_rust_notifier_context_free(uvm_va_block_context_t *context)
{
	if (!uvm_rust_fix_notifier || !keep(context))
		uvm_va_block_context_free(context);
}
