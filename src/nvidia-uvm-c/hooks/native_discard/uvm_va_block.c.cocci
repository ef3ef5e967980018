// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A chunk that is there already was zeroed when it came, which after a discard is
// not enough: let us say what is missing. Upstream's own answer comes first, and
// has nothing to zero while no page is discarded as it does that.
@ chunk_there @
typedef uvm_va_block_t, uvm_va_block_retry_t, uvm_gpu_t, uvm_va_block_region_t;
identifier block, retry, gpu, idx, region, st;
expression T;
@@
block_populate_gpu_chunk(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_gpu_t *gpu, size_t idx, uvm_va_block_region_t region)
{
<...
if (st->chunks[idx]) {
  if (T) { ... }
-  return NV_OK;
+  return uvm_rust_prepare_gpu_chunk(block, gpu, st->chunks[idx], region);
}
...>
}

// A va_block that was once whole on a GPU does not count as that any more when the GPU leaves it: what it gets there
// next is memory that others had.
@@
identifier block, id;
@@
block_destroy_gpu_state(uvm_va_block_t *block, ...)
{
<...
  uvm_processor_mask_clear(&block->evicted_gpus, id);
+ if (uvm_rust_fix_ever_resident)
+ 	uvm_processor_mask_clear(&block->ever_fully_resident, id);
...>
}

// What is discarded is not copied to the host: memory that is there already is zeroed (uvm_rust_native_discard.h).
@ host @
typedef uvm_page_mask_t;
identifier block, mask, region;
expression E;
@@
block_populate_pages_cpu(uvm_va_block_t *block, const uvm_page_mask_t *mask, uvm_va_block_region_t region, ...)
{
...
+ status = uvm_rust_zero_discarded(block, mask, region);
+ if (status != NV_OK)
+ 	return status;
uvm_page_mask_init_from_region(E, region, mask);
...
}
