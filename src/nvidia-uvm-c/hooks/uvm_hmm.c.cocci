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

// Who isolates pages waits for no va_block while Linux's locks are held.
@ invalidate @
typedef uvm_va_block_t;
identifier block, context;
@@
hmm_invalidate(uvm_va_block_t *block, ...)
{
<...
  context = uvm_va_block_context_alloc(...);
  ...
- uvm_mutex_lock(&block->lock);
+ if (!uvm_rust_lock_to_invalidate(block)) {
+	uvm_va_block_context_free(context);
+	return true;
+ }
...>
}

// Another VA space of the same process gives up what this one moves.
@ ignores @
identifier block, range;
@@
hmm_invalidate(uvm_va_block_t *block, const struct mmu_notifier_range *range, ...)
{
<...
- range->owner == &g_uvm_global
+ uvm_rust_is_ignored(range)
...>
}

@ unmaps @
identifier block, range, id, region;
expression C, M, T;
@@
hmm_invalidate(uvm_va_block_t *block, const struct mmu_notifier_range *range, ...)
{
<...
uvm_va_block_unmap(block, C, id,
- region,
+ uvm_rust_unmaps(block, range, region),
M, T)
...>
}

@ gives_up @
identifier block, range, region, status;
expression C, T;
@@
hmm_invalidate(uvm_va_block_t *block, const struct mmu_notifier_range *range, ...)
{
<...
  if (C)
    uvm_va_block_munmap_region(block, region);
+ if (uvm_rust_is_announced(range))
+	uvm_rust_gives_up(block, region);
  if (status == NV_OK)
    status = uvm_tracker_wait(T);
...>
}

// A page on a GPU that the VA space has not registered: it is not taken.
@ strangers @
identifier args, block, ret;
@@
migrate_vma_setup_locked(struct migrate_vma *args, uvm_va_block_t *block)
{
<...
  ret = migrate_vma_setup(args);
+ if (!ret)
+ 	uvm_rust_leaves_strangers(args, block->hmm.va_space);
...>
}

// A page of a GPU's that another VA space had: it is taken where it is isolated, and else asked for anew.
@ takes @
identifier block, page;
expression E;
@@
gpu_chunk_add(uvm_va_block_t *block, ..., struct page *page)
{
<...
+ uvm_rust_takes_page(block, page);
UVM_ASSERT(E == block->hmm.va_space);
...>
}

@ others @
identifier block, status, page;
@@
populate_region(uvm_va_block_t *block, ...)
{
<...
+ if (uvm_rust_is_others(block, page))
+	return NV_WARN_MORE_PROCESSING_REQUIRED;
status = gpu_chunk_add(block, ..., page);
...>
}

@ asked @
typedef uvm_va_block_region_t;
identifier block, vma, pfns, region;
@@
hmm_make_resident_cpu(uvm_va_block_t *block, ..., struct vm_area_struct *vma, unsigned long *pfns, uvm_va_block_region_t region, ...)
{
<...
+ {
+	NV_STATUS elsewhere = uvm_rust_has_elsewhere(block, vma, pfns, region);
+
+	if (elsewhere != NV_OK)
+		return elsewhere;
+ }
return populate_region(block, ...);
...>
}

// A page that moves away from a GPU.
@ remove @
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

// A CPU fault comes again, so that its thread can be killed, and others have the va_block in between.
@ cpu_fault @
typedef uvm_processor_id_t;
identifier ret, args, block, processor;
@@
hmm_block_cpu_fault_locked(uvm_processor_id_t processor, ...)
{
<...
ret = migrate_vma_setup_locked(args, block);
UVM_ASSERT(!ret);
+ if (UVM_ID_IS_CPU(processor) && uvm_rust_gave_up(args))
+	return NV_ERR_BUSY_RETRY;
...>
}

// What a forked process has as well does not go to a GPU as it is.
@ shared_fault @
typedef uvm_processor_id_t;
identifier ret, args, block, p, r;
@@
uvm_hmm_va_block_service_locked(uvm_processor_id_t p, uvm_processor_id_t r, ...)
{
<...
ret = migrate_vma_setup_locked(args, block);
UVM_ASSERT(!ret);
+ if (uvm_rust_has_shared(args))
+	return uvm_rust_fault_shared(uvm_rust_unshare(block, va_block_retry, uvm_rust_hmm_context(service_context), region, args));
+ if (uvm_rust_finds_no_room(args, block, region, uvm_rust_moving(service_context, r)))
+	return uvm_rust_touch_first(block, va_block_retry, uvm_rust_hmm_context(service_context), region,
+				    uvm_rust_moving(service_context, r), args);
...>
}

// Nobody waits for room in its cgroup, or ends a process for that, in a thread that services all faults.
@ charged_fault @
typedef uvm_processor_id_t;
identifier args, block, p, r;
@@
uvm_hmm_va_block_service_locked(uvm_processor_id_t p, uvm_processor_id_t r, uvm_va_block_t *block, ...)
{
<...
- migrate_vma_pages(args);
+ uvm_rust_migrate_pages(args, block);
...>
}

// The same where a program asks for it; and nothing is isolated where others have a va_block that is needed.
@ shared_migrate @
typedef uvm_va_block_retry_t;
type T;
identifier context;
expression E;
@@
uvm_hmm_va_block_migrate_locked(uvm_va_block_t *va_block, uvm_va_block_retry_t *va_block_retry, T *context, ...)
{
<...
+ if (uvm_rust_gave_up(args))
+	return uvm_rust_migrate_later(va_block, va_block_retry);
+ if (!UVM_ID_IS_CPU(dest_id) && uvm_rust_has_shared(args))
+	return uvm_rust_migrate_shared(uvm_rust_unshare(va_block, va_block_retry, context, region, args));
E = uvm_hmm_migrate_alloc_and_copy(...);
...>
}

// A range of UVM's over ordinary memory: what is on a GPU there is no va_block's before that ends.
@ covered @
typedef uvm_va_space_t;
identifier space, block, mm;
@@
uvm_hmm_va_block_reclaim(uvm_va_space_t *space, struct mm_struct *mm, ...)
{
<...
+ status = uvm_rust_covered(block, mm);
+ if (status != NV_OK)
+ 	return status;
  mmu_interval_notifier_remove(&block->hmm.notifier);
...>
}

// Managed memory is mapped where there was ordinary memory: Linux has unmapped that.
@ replaced @
identifier block, vma, mm, addr;
@@
split_block_if_needed(uvm_va_block_t *block, ...)
{
<...
- vma = find_vma_intersection(mm, addr, block->end);
+ vma = uvm_rust_brings_from(block, mm, addr);
...>
}
