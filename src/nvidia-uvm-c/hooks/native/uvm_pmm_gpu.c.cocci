// SPDX-License-Identifier: GPL-2.0-only OR MIT
// For a driver of 580 or later that is built with UVM_RUST_WHOLE=0. Tells Rust that a root chunk is about to leave its
// list to be reclaimed, while the chunk still shows which list that is. Caller holds pmm->list_lock.
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

// Who serves a fault says that all of a va_block is discarded also of a GPU that has no chunk for it.
@@
identifier of, root;
@@
uvm_pmm_gpu_mark_root_chunk_discarded(uvm_pmm_gpu_t *of, uvm_gpu_chunk_t *root)
{
+ if (!root && uvm_rust_fix_no_chunk)
+ 	return;
...
}
