/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_tools.c: nobody has others wait while many trackers are told of events.
 *
 * A tracker is a queue, or counters, of a process that wants to hear of a VA space's events. Upstream makes as many as files can be
 * opened, and puts each event into all of their queues: faults in the thread that services those of all processes, and what has to wait
 * for a GPU in a thread for which whoever closes a VA space, or moves memory, has to wait.
 */
#ifndef UVM_RUST_TRACKERS_H
#define UVM_RUST_TRACKERS_H

#include <linux/atomic.h>
#include <linux/slab.h>

#include "uvm_common.h"
#include "uvm_tools.h"
#include "uvm_va_space.h"

#include "uvm_rust_fixes.h"

/* Of one VA space. A debugger and a profiler or two have a queue for each kind of event, and counters for each GPU. */
#define TRACKERS_MAX	64
/*
 * Va_blocks' events of one VA space that have yet to be put into queues, times its trackers. A va_block's may be as many events as it has
 * pages, so that what others wait for is two million entries at most.
 */
#define PENDING_MAX	4096

/* Whether @va_space may have one more, which counts until it goes in either case. */
static inline bool uvm_rust_tracker_comes(uvm_va_space_t *va_space)
{
	return atomic_inc_return(&va_space->uvm_rust_trackers) <= TRACKERS_MAX || !uvm_rust_fix_trackers;
}

static inline void uvm_rust_tracker_goes(uvm_va_space_t *va_space)
{
	atomic_dec(&va_space->uvm_rust_trackers);
}

/* A va_block's events are in all queues, or lost. */
static inline void uvm_rust_pending_told(uvm_va_space_t *va_space)
{
	atomic_dec(&va_space->uvm_rust_pending);
}

static inline void *uvm_rust_pending_item(uvm_va_space_t *va_space, struct kmem_cache *cache)
{
	NvU64 pending = atomic_inc_return(&va_space->uvm_rust_pending);
	void *item = NULL;

	if (!uvm_rust_fix_trackers || pending * atomic_read(&va_space->uvm_rust_trackers) <= PENDING_MAX)
		item = kmem_cache_alloc(cache, NV_UVM_GFP_FLAGS);
	if (!item)
		uvm_rust_pending_told(va_space);
	return item;
}

/*
 * In place of kmem_cache_alloc(): memory of @cache for a va_block's events of this kind, or NULL. Then the queues that listen
 * count one as dropped, so that who reads them knows that events are missing. Caller holds the tools' lock.
 */
#define uvm_rust_pending_alloc(va_space, cache, event)				\
({										\
	void *_item = uvm_rust_pending_item(va_space, cache);			\
										\
	if (!_item && uvm_rust_fix_trackers)					\
		uvm_rust_count_dropped(va_space, event);			\
	_item;									\
})

/* Of the queues in the list, whose control pages have this name. */
#define uvm_rust_count_dropped_in(list, control, event)				\
do {										\
	uvm_tools_queue_t *_queue;						\
										\
	list_for_each_entry(_queue, (list) + (event), queue_nodes[event])	\
		atomic64_inc((atomic64_t *)&_queue->control->dropped + (event));\
} while (0)

/* Until 550.40.07 there is one version of queues; then each has a list, and from 565 on they have control pages of one form. */
#if defined(UVM_RUST_BROADCAST_EVENT)
#define uvm_rust_count_dropped(va_space, event)	uvm_rust_count_dropped_in((va_space)->tools.queues, control, event)
#elif defined(UVM_RUST_ONE_CONTROL)
#define uvm_rust_count_dropped(va_space, event)						\
do {											\
	uvm_rust_count_dropped_in((va_space)->tools.queues, control, event);		\
	uvm_rust_count_dropped_in((va_space)->tools.queues_v2, control, event);		\
} while (0)
#else
#define uvm_rust_count_dropped(va_space, event)						\
do {											\
	uvm_rust_count_dropped_in((va_space)->tools.queues_v1, control_v1, event);	\
	uvm_rust_count_dropped_in((va_space)->tools.queues_v2, control_v2, event);	\
} while (0)
#endif

#endif
