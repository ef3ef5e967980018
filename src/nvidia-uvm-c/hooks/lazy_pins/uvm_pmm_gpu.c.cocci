// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A chunk that Linux has let go is pinned, and on the list of a thread that frees it. An eviction that has all of its root
// chunk pinned takes it for its own: so the thread frees it under the PMM's lock, or the eviction takes it off the list.
@@
identifier pmm, chunk;
@@
process_lazy_free(uvm_pmm_gpu_t *pmm)
{
  uvm_gpu_chunk_t *chunk;
+ if (uvm_rust_process_lazy_free(pmm))
+ 	return;
...
}

// In evict_root_chunk(), which looks at the root chunk under that lock next.
@@
identifier pmm, chunk;
@@
+ uvm_rust_take_lazy_pins(pmm, chunk);
  uvm_pmm_gpu_merge_chunk_locked(pmm, chunk);
  uvm_spin_lock(&pmm->list_lock);
