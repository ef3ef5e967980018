/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Chunks that are pinned: among them those of pages that Linux has let go, which a thread of upstream's has on
 * its list, and frees. Only for files in front of uvm_pmm_gpu.c.
 */
/* Whether an eviction of its root chunk has pinned @chunk, which is pinned: then it is on no list. */
#define uvm_rust_is_of_eviction(chunk)		list_empty(&(chunk)->list)
/* What that thread has on its list, under the list lock. */
#define uvm_rust_lazy_frees(pmm)		(&(pmm)->root_chunks.va_block_lazy_free)
/* A root chunk is on a queue until that thread has its chunks, which may not be evicted. */
#define uvm_rust_may_be_pinned			true
