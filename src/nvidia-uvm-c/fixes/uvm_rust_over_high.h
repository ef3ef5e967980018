/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How a thread takes memory without waiting there for memory.high. Linux counts the pages that a thread takes above it, has the thread
 * wait for them on its way back to user space, and where they are more than 64 (MEMCG_CHARGE_BATCH) at once, with the locks
 * that the thread holds. One charge counts 64 at most, unless it is for more, so that none waits at once that begins with no page counted.
 */
#ifndef UVM_RUST_OVER_HIGH_H
#define UVM_RUST_OVER_HIGH_H

#include <linux/sched.h>

#ifdef CONFIG_MEMCG
/* Returns how many pages the calling thread has taken above memory.high, and sets the count to 0. */
static inline unsigned int uvm_rust_forget_over(void)
{
	unsigned int before = current->memcg_nr_pages_over_high;

	current->memcg_nr_pages_over_high = 0;
	return before;
}

/* Sets the count again: to @before, and if the thread took memory of its own since (@is_own), plus that. */
static inline void uvm_rust_remember_over(unsigned int before, bool is_own)
{
	if (is_own)
		before += current->memcg_nr_pages_over_high;
	current->memcg_nr_pages_over_high = before;
}
#else
static inline unsigned int uvm_rust_forget_over(void) { return 0; }
static inline void uvm_rust_remember_over(unsigned int before, bool is_own) { }
#endif

#endif
