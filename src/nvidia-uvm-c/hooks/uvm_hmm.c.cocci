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

// What a forked process has as well does not go to a GPU as it is.
@ shared_fault @
identifier ret, args, block;
@@
uvm_hmm_va_block_service_locked(...)
{
<...
ret = migrate_vma_setup_locked(args, block);
UVM_ASSERT(!ret);
+ if (uvm_rust_has_shared(args))
+	return uvm_rust_fault_shared(uvm_rust_unshare(block, va_block_retry, service_context, region, args));
...>
}

// The same where a program asks for it.
@ shared_migrate @
expression E;
@@
uvm_hmm_va_block_migrate_locked(...)
{
<...
+ if (!UVM_ID_IS_CPU(dest_id) && uvm_rust_has_shared(args))
+	return uvm_rust_migrate_shared(uvm_rust_unshare(va_block, va_block_retry, service_context, region, args));
E = uvm_hmm_migrate_alloc_and_copy(...);
...>
}
