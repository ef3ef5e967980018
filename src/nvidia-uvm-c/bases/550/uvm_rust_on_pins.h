/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Chunks that are pinned. Only for files in front of uvm_pmm_gpu.c.
 */
/* Whether an eviction of its root chunk has pinned @chunk, which is pinned. */
#define uvm_rust_is_of_eviction(chunk)		((void)(chunk), true)
/* A root chunk that may not be evicted is on no queue. */
#define uvm_rust_may_be_pinned			false
