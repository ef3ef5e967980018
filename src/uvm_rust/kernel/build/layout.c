// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Compiled to assembly only: the lines that begin with "->" say what Rust must know of
 * this kernel, and layout.awk turns them into Rust.
 */
#include <linux/gfp.h>
#include <linux/kbuild.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#define TYPE(name, type)				\
	DEFINE(sizeof.name, sizeof(type));		\
	DEFINE(alignof.name, __alignof__(type))

void uvm_rust_k_layout(void);
void uvm_rust_k_layout(void)
{
	DEFINE(usize.PAGE_SIZE, PAGE_SIZE);
	DEFINE(usize.KMALLOC_MINALIGN, ARCH_KMALLOC_MINALIGN);
	DEFINE(u32.GFP_KERNEL, GFP_KERNEL);
	DEFINE(u32.GFP_KERNEL_ACCOUNT, GFP_KERNEL_ACCOUNT);
	DEFINE(u32.GFP_NOWAIT, GFP_NOWAIT | __GFP_NOWARN);
	TYPE(CMutex, struct mutex);
	TYPE(CSpinLock, spinlock_t);
	TYPE(CWaitQueue, struct wait_queue_head);
	TYPE(CLockClassKey, struct lock_class_key);
}
