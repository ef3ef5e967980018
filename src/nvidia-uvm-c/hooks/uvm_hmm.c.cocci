// SPDX-License-Identifier: GPL-2.0-only OR MIT
// An eviction that fails gives back what it has isolated, in all regions of policies.
@ evict @
identifier src, dst, region, pages, status;
@@
hmm_va_block_evict_chunks(...)
{
<...
migrate_device_finalize(src + region.first, dst + region.first, pages);
+ uvm_rust_hmm_give_back_rest(va_block, src, dst, region);
return status;
...>
}

// The same for a page that moves away from a GPU.
@ remove @
typedef uvm_va_block_t;
identifier block, given;
expression T;
@@
gpu_chunk_remove(uvm_va_block_t *block, ...)
{
<...
uvm_mmu_chunk_unmap(given, T);
+ uvm_rust_chunk_is_nobodys(block, given);
...>
}
