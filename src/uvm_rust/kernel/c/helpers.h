/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What C does for the kernel crate of ours (src/uvm_rust/kernel): inline functions
 * and macros, which Rust cannot call. helpers.rs declares the same.
 */
#ifndef UVM_RUST_K_HELPERS_H
#define UVM_RUST_K_HELPERS_H

#include <linux/types.h>

struct lock_class_key;
struct mutex;
struct wait_queue_head;

/* Memory; flags are a gfp_t. NULL where there is none. */
void *uvm_rust_k_kmalloc(size_t size, u32 flags);
void uvm_rust_k_kfree(const void *ptr);
void *uvm_rust_k_kvmalloc(size_t size, u32 flags);
void uvm_rust_k_kvfree(const void *ptr);

/* Locks, each of a lockdep class; name and key live as long as the lock. */
void uvm_rust_k_mutex_init(struct mutex *m, const char *name, struct lock_class_key *key);
void uvm_rust_k_mutex_lock(struct mutex *m);
void uvm_rust_k_mutex_unlock(struct mutex *m);
void uvm_rust_k_spin_init(spinlock_t *l, const char *name, struct lock_class_key *key);
void uvm_rust_k_spin_lock(spinlock_t *l);
void uvm_rust_k_spin_unlock(spinlock_t *l);

void uvm_rust_k_queue_init(struct wait_queue_head *q, const char *name, struct lock_class_key *key);
void uvm_rust_k_queue_wake_all(struct wait_queue_head *q);
/* Gives m back, waits to be woken or for a signal, and takes m again; returns how many
 * jiffies were left. */
long uvm_rust_k_queue_wait(struct wait_queue_head *q, struct mutex *m, long jiffies);
int uvm_rust_k_signal_pending(void);

/* Returns how many bytes were not copied. */
size_t uvm_rust_k_copy_from_user(void *to, unsigned long from, size_t n);
size_t uvm_rust_k_copy_to_user(unsigned long to, const void *from, size_t n);

/* A line for the log, of the kernel's level 0 to 7. */
void uvm_rust_k_print(int level, const char *text, size_t n);
/* A count of references has saturated. */
void uvm_rust_k_refcount_warn(void);
/* After a panic. */
void __noreturn uvm_rust_k_bug(void);

#endif
