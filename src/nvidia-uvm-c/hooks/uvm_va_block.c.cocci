// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A VA space without an mm whose payer is over its limit gets no chunk that is new (uvm_rust_charge.h).
@ enough @
typedef uvm_va_block_t, uvm_va_block_retry_t, uvm_gpu_t, uvm_va_block_region_t;
identifier block, retry, gpu, idx, region, size, chunk;
@@
block_populate_gpu_chunk(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_gpu_t *gpu, size_t idx, uvm_va_block_region_t region)
{
<...
+ if (uvm_rust_has_enough(block))
+ 	return NV_ERR_NO_MEMORY;
  status = block_alloc_gpu_chunk(block, retry, gpu, size, &chunk);
...>
}

// What a chunk has that is new is noted. One that is there already: no_native_discard/ and native_discard/.
@ chunk @
typedef uvm_va_block_t, uvm_va_block_retry_t, uvm_gpu_t, uvm_va_block_region_t;
identifier block, retry, gpu, idx, region, st;
expression E;
@@
block_populate_gpu_chunk(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_gpu_t *gpu, size_t idx, uvm_va_block_region_t region)
{
<...
  st->chunks[idx] = E;
+ uvm_rust_gpu_chunk_added(block, gpu, E, region);
...>
}

// The same for the host's pages, before those that lack are allocated.
@ pages @
typedef uvm_page_mask_t;
identifier block, mask, region;
expression E;
@@
block_populate_pages_cpu(uvm_va_block_t *block, uvm_page_mask_t *mask, uvm_va_block_region_t region, ...)
{
...
+ status = uvm_rust_prepare_cpu_pages(block, mask, region);
+ if (status != NV_OK)
+ 	return status;
uvm_page_mask_init_from_region(E, region, mask);
...
}

// What is on a device will be read into new memory, as what is resident elsewhere is copied there.
@ stored @
identifier block, mask, region, chunk_region, resident, flags;
@@
block_populate_pages_cpu(uvm_va_block_t *block, uvm_page_mask_t *mask, uvm_va_block_region_t region, ...)
{
<...
- if (!uvm_page_mask_region_full(resident, chunk_region))
+ if (!flash_has_data(block, resident, chunk_region))
    flags |= UVM_CPU_CHUNK_ALLOC_FLAGS_ZERO;
...>
}

// Whom host memory is charged to.
@ account @
typedef uvm_va_block_context_t;
identifier block, ctx, flags;
expression E;
@@
block_populate_pages_cpu(uvm_va_block_t *block, ..., uvm_va_block_context_t *ctx, ...)
{
<...
- if (E)
-   flags |= UVM_CPU_CHUNK_ALLOC_FLAGS_ACCOUNT;
+ flags |= uvm_rust_account(block, ctx, E);
...>
}

@ payer @
identifier block, charged;
expression E;
@@
block_populate_pages(uvm_va_block_t *block, ...)
{
<...
- uvm_memcg_context_start(&charged, E);
+ uvm_rust_memcg_context_start(&charged, block, E);
...>
}

// Before anything is populated and copied: what was discarded is not worth a copy.
@ populate @
typedef uvm_processor_id_t;
identifier block, retry, ctx, id, region, mask;
expression E, there;
@@
block_populate_pages(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_va_block_context_t *ctx, uvm_processor_id_t id, uvm_va_block_region_t region, const uvm_page_mask_t *mask)
{
<...
+ status = uvm_rust_drop_stale(block, ctx, id, region, mask);
+ if (status != NV_OK)
+ 	return status;
if (mask)
    uvm_page_mask_andnot(E, mask, there);
else
    uvm_page_mask_complement(E, there);
...>
}

// Pages were made resident: they are no longer discarded, and fit to be seen.
@ moved @
identifier block, ctx, region, mask;
expression E;
@@
uvm_va_block_make_resident_finish(uvm_va_block_t *block, uvm_va_block_context_t *ctx, uvm_va_block_region_t region, const uvm_page_mask_t *mask)
{
...
break_read_duplication_in_region(...);
+ uvm_rust_made_resident(block, ctx, region, mask);
...
}

@ duplicated @
identifier block, retry, ctx, id, region, mask, cause;
@@
uvm_va_block_make_resident_read_duplicate(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_va_block_context_t *ctx, uvm_processor_id_t id, uvm_va_block_region_t region, const uvm_page_mask_t *mask, ...)
{
<...
UVM_ASSERT(cause != UVM_MAKE_RESIDENT_CAUSE_EVICTION);
+ uvm_rust_made_resident(block, ctx, region, mask);
...>
}

// Who may write to a page, and thereby to one that flash has a copy of, is decided
// in two functions, in front of which ours are put (uvm_rust_flash_block.h).
@ map @
@@
- uvm_va_block_map
+ uvm_va_block_map__c
  (...) { ... }

@ permission @
@@
- uvm_va_block_page_compute_highest_permission
+ uvm_va_block_page_compute_highest_permission__c
  (...) { ... }

// Nor is it when a GPU leaves the VA space: what is not discarded then goes to the host.
@ leaving @
typedef uvm_va_block_region_t, uvm_gpu_t;
iterator name for_each_va_block_subregion_in_mask;
identifier block, gpu;
expression region, there, all;
statement S;
@@
block_evict_pages_from_gpu(uvm_va_block_t *block, ..., uvm_gpu_t *gpu, ...)
{
<...
+ uvm_rust_drop_leaving(block, gpu);
  for_each_va_block_subregion_in_mask(region, there, all) S
...>
}

// Evicting part of a block of ordinary memory (HMM): upstream hands Linux the
// page frame numbers of the whole block, of which only the evicted part was set.
// And it takes the chunks of pages that Linux did not let go, or follows a null pointer
// where Linux says so before the copy.
@ evict @
identifier evicted, tracker;
@@
uvm_va_block_evict_chunks(...)
{
<...
(
  pages_to_evict = &block_context->caller_page_mask;
+ uvm_rust_clear_hmm_pfns(block_context);
|
  uvm_page_mask_and(pages_to_evict, pages_to_evict, ...);
+ uvm_rust_leave_held_pages(va_block, block_context);
|
+ if (uvm_rust_chunk_stays(evicted))
+ 	continue;
  uvm_mmu_chunk_unmap(evicted, tracker);
)
...>
}

// A va_block of ordinary memory gives up what was unmapped: the chunks, which Linux's pages
// keep, shall not lead to it any more.
@ release @
identifier block, given;
expression T;
@@
block_gpu_release_region(uvm_va_block_t *block, ...)
{
<...
uvm_mmu_chunk_unmap(given, T);
+ uvm_rust_chunk_is_nobodys(block, given);
...>
}

// The thread that maps what was evicted serves all processes, and waits for the locks of none.
@ mappings @
identifier space, m;
@@
block_add_eviction_mappings(...)
{
<...
(
- m = uvm_va_space_mm_retain_lock(space);
+ if (!uvm_rust_mappings_mm(space, va_block, &m))
+ 	goto done;
|
- uvm_va_space_down_read(space);
+ if (!uvm_rust_mappings_space(space, va_block, &mm)) {
+ 	uvm_va_block_context_free(block_context);
+ 	goto done;
+ }
)
...>
}

// Big page table entries that follow one another are one region of pages (uvm_rust_big_ptes.h).
@ big_ptes @
iterator name for_each_set_bit;
identifier block, i, ptes, region;
expression size;
expression list others;
@@
uvm_page_mask_init_from_big_ptes(uvm_va_block_t *block, ...)
{
<...
  for_each_set_bit(i, ptes, size) {
    region = uvm_va_block_big_page_region(block, i, others);
+   i = uvm_rust_last_of_run(ptes, size, i);
+   region.outer = uvm_va_block_big_page_region(block, i, others).outer;
    ...
  }
...>
}

// Who gets a mapping of ordinary memory without a fault may read (uvm_rust_mappings.h).
@ unasked @
identifier block, prot;
@@
uvm_va_block_add_mappings(uvm_va_block_t *block, ...)
{
<...
prot = uvm_va_block_page_compute_highest_permission(block, ...);
+ if (UVM_ID_IS_GPU(processor_id))
+	prot = uvm_rust_unasked_prot(block, prot);
...>
}

@ unasked_moved @
identifier block;
@@
uvm_va_block_add_mappings_after_migration(uvm_va_block_t *block, ...)
{
<...
uvm_assert_mutex_locked(&block->lock);
+ max_prot = uvm_rust_unasked_prot(block, max_prot);
...>
}

// The mm of a VA space may have gone where a CPU faults on managed memory.
@@
expression space, vma;
@@
block_map_cpu_page_to(...)
{
<...
- UVM_ASSERT(!uvm_va_space_mm_enabled(space) || space->va_space_mm.mm == vma->vm_mm);
+ UVM_ASSERT(!uvm_va_space_mm_enabled(space) || !space->va_space_mm.mm || space->va_space_mm.mm == vma->vm_mm);
...>
}
