// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Mends of upstream's own discard that need nothing else of ours, so that a driver with UVM_RUST_WHOLE=0 has them, too.

// Breaking read duplication does not narrow what a discard was asked for.
@ broken @
@@
va_block_discard_locked(...)
{
<...
- uvm_va_block_make_resident
+ uvm_rust_break_duplicates
  (...)
...>
}

// A discard that fails leaves nothing discarded that is mapped.
@ failed_discard @
@@
uvm_va_block_discard(...)
{
<...
- va_block_discard_locked
+ uvm_rust_discard_locked
  (...)
...>
}

// Nor is what is discarded mapped for writing where nobody has written to it.
@ may_write @
typedef uvm_va_block_t, uvm_page_index_t, uvm_prot_t;
identifier block, page;
identifier highest = {uvm_va_block_page_compute_highest_permission, uvm_va_block_page_compute_highest_permission__c};
expression T, P;
@@
highest(uvm_va_block_t *block, ..., uvm_page_index_t page)
{
<...
if (!uvm_processor_mask_test(T, P))
  return UVM_PROT_NONE;
+ if (uvm_rust_may_only_read(block, page))
+ 	return UVM_PROT_READ_ONLY;
...>
}
