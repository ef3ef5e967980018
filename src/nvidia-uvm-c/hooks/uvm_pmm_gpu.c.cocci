// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A root chunk is about to leave its list to be reclaimed: say so while the
// list it is on can still be told. Caller holds pmm->list_lock.
@@
typedef uvm_pmm_gpu_t, uvm_gpu_chunk_t;
identifier pmm, chunk;
expression E;
@@
chunk_start_eviction(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
<...
+ uvm_rust_chunk_start_eviction(pmm, chunk);
  list_del_init(E);
...>
}

// A chunk was pinned, unpinned or freed: its root chunk enters or leaves the lists.
@@
identifier pmm, chunk, root;
// Since 565 it is the chunk that is asked.
identifier is_user = {uvm_pmm_gpu_memory_type_is_user, uvm_gpu_chunk_is_user};
expression E;
@@
chunk_update_lists_locked(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
...
uvm_assert_spinlock_locked(&pmm->list_lock);
+ uvm_rust_root_chunk_update(pmm, root);
if (is_user(E)) {
<+...
list_del_init(&root->chunk.list);
...+>
}
...
}

// A free root chunk leaves its list for PMA, by itself.
@@
identifier pmm, result;
@@
free_next_available_root_chunk(uvm_pmm_gpu_t *pmm, ...)
{
<...
  chunk_pin(pmm, result);
+ uvm_rust_root_chunk_update(pmm, root_chunk_from_chunk(pmm, result));
...>
}

// Which root chunk goes next, a free one or one to evict, is for ours to say; the rest is what it comes
// to without queues.
@@
identifier pmm;
@@
pick_root_chunk_to_evict(uvm_pmm_gpu_t *pmm)
{
...
+ uvm_gpu_root_chunk_t *ours = uvm_rust_root_chunk_to_evict(pmm, NULL);
+ if (!IS_ERR(ours))
+   return ours;
uvm_spin_lock(&pmm->list_lock);
...
}

// A root chunk is split where it is: its parts may hold what is used.
@@
identifier pmm, chunk;
@@
split_gpu_chunk(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
<...
  chunk->state = UVM_PMM_GPU_CHUNK_STATE_IS_SPLIT;
+ uvm_rust_root_chunk_split(pmm, chunk);
...>
}

// The eviction of one VA space's chunk.
@@
@@
+ #include "uvm_rust_evict_of.h"
pick_and_evict_root_chunk_retry(...)
{ ... }

// Nothing to evict, and nothing free: perhaps only for a moment.
@@
typedef uvm_pmm_context_t;
identifier pmm, pmm_context, root;
@@
pick_and_evict_root_chunk(uvm_pmm_gpu_t *pmm, ..., uvm_pmm_context_t pmm_context, ...)
{
<...
- root = pick_root_chunk_to_evict(pmm);
+ root = uvm_rust_pick_root_chunk(pmm, pmm_context == PMM_CONTEXT_DEFAULT);
...>
}

// A page of ordinary memory that mremap() moved is its va_block's no more, but its chunk
// still says so: upstream would look for it there for ever. One that stays for now is
// tried again.
@@
typedef uvm_gpu_root_chunk_t, uvm_va_block_t, uvm_tracker_t;
identifier pmm, root_chunk, va_block, tracker;
initializer I;
@@
evict_root_chunk_from_va_block(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk, uvm_va_block_t *va_block)
{
...
uvm_tracker_t tracker = I;
...
uvm_mutex_unlock(&va_block->lock);
+ status = uvm_rust_evict_rest(pmm, root_chunk, va_block, &tracker, status);
...
}

// What a failed eviction has got so far is set aside before the first of it is freed, as from
// then on others pin chunks of their own there.
@@
identifier pmm, root_chunk, chunk, status;
@@
evict_root_chunk(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk, ...)
{
<...
  chunk_update_lists_locked(pmm, chunk);
+ uvm_rust_collect_pinned(pmm, chunk);
...>
}

@@
identifier pmm, chunk, status;
@@
  status =
- chunk_walk_pre_order(pmm, chunk, free_first_pinned_chunk_func, NULL)
+ uvm_rust_free_first_pinned(pmm, chunk)
  ;

// Evictions are counted, so that an allocation that finds nothing can tell that others evict
// (uvm_rust_pmm_gpu.h).
@@
@@
- evict_root_chunk
+ evict_root_chunk__c
  (...) { ... }

@@
@@
- uvm_pmm_gpu_pma_evict_pages
+ uvm_pmm_gpu_pma_evict_pages__c
  (...) { ... }

@@
@@
- uvm_pmm_gpu_pma_evict_range
+ uvm_pmm_gpu_pma_evict_range__c
  (...) { ... }

@@
identifier alloc = {uvm_pmm_gpu_alloc, pmm_gpu_alloc};
@@
alloc(...)
{
<...
- alloc_chunk
+ uvm_rust_alloc_chunk
  (...)
...>
}
