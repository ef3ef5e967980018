// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * See helpers.h. Nothing here decides anything: each function is one call of the
 * kernel's, but for queue_wait, which is the usual loop's body.
 */
#include <linux/bug.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "helpers.h"

void *uvm_rust_k_kmalloc(size_t size, u32 flags)
{
	return kmalloc(size, (__force gfp_t)flags);
}

void uvm_rust_k_kfree(const void *ptr)
{
	kfree(ptr);
}

void *uvm_rust_k_kvmalloc(size_t size, u32 flags)
{
	gfp_t gfp = (__force gfp_t)flags;

	/* What must not sleep cannot be mapped page by page. */
	if (!gfpflags_allow_blocking(gfp))
		return kmalloc(size, gfp);
	return kvmalloc(size, gfp);
}

void uvm_rust_k_kvfree(const void *ptr)
{
	kvfree(ptr);
}

void uvm_rust_k_mutex_init(struct mutex *m, const char *name, struct lock_class_key *key)
{
	__mutex_init(m, name, key);
}

void uvm_rust_k_mutex_lock(struct mutex *m)
{
	mutex_lock(m);
}

void uvm_rust_k_mutex_unlock(struct mutex *m)
{
	mutex_unlock(m);
}

void uvm_rust_k_spin_init(spinlock_t *l, const char *name, struct lock_class_key *key)
{
	/* spin_lock_init() has a class for the place that it stands in, which is here. */
#if defined(CONFIG_DEBUG_SPINLOCK) && defined(CONFIG_PREEMPT_RT)
	rt_mutex_base_init(&l->lock);
	__rt_spin_lock_init(l, name, key, false);
#elif defined(CONFIG_DEBUG_SPINLOCK)
	__raw_spin_lock_init(spinlock_check(l), name, key, LD_WAIT_CONFIG);
#else
	spin_lock_init(l);
#endif
}

void uvm_rust_k_spin_lock(spinlock_t *l) __acquires(l)
{
	spin_lock(l);
}

void uvm_rust_k_spin_unlock(spinlock_t *l) __releases(l)
{
	spin_unlock(l);
}

void uvm_rust_k_queue_init(struct wait_queue_head *q, const char *name, struct lock_class_key *key)
{
	__init_waitqueue_head(q, name, key);
}

void uvm_rust_k_queue_wake_all(struct wait_queue_head *q)
{
	wake_up_all(q);
}

long uvm_rust_k_queue_wait(struct wait_queue_head *q, struct mutex *m, long jiffies)
{
	DEFINE_WAIT(entry);

	/* On the queue before the mutex is free: nobody is woken too early to notice. */
	prepare_to_wait(q, &entry, TASK_INTERRUPTIBLE);
	mutex_unlock(m);
	jiffies = schedule_timeout(jiffies);
	finish_wait(q, &entry);
	mutex_lock(m);
	return jiffies;
}

int uvm_rust_k_signal_pending(void)
{
	return signal_pending(current);
}

size_t uvm_rust_k_copy_from_user(void *to, unsigned long from, size_t n)
{
	return copy_from_user(to, (const void __user *)from, n);
}

size_t uvm_rust_k_copy_to_user(unsigned long to, const void *from, size_t n)
{
	return copy_to_user((void __user *)to, from, n);
}

void uvm_rust_k_print(int level, const char *text, size_t n)
{
	printk("%c%c%.*s", KERN_SOH_ASCII, '0' + level, (int)n, text);
}

void uvm_rust_k_refcount_warn(void)
{
	WARN_ONCE(1, "uvm-rust: a count of references ran over, or was used after its end; leaking memory\n");
}

void __noreturn uvm_rust_k_bug(void)
{
	BUG();
}
