// SPDX-License-Identifier: GPL-2.0-only OR MIT
// UVM_MIGRATE of memory that is read-duplicated: what became of the pages that were to be duplicated is not forgotten over those that
// are discarded.
@ discarded_too @
typedef uvm_va_block_t;
identifier block, mask, region;
statement S;
@@
uvm_va_block_migrate_locked(uvm_va_block_t *block, ...)
{
<...
- if (uvm_page_mask_init_from_region(mask, region, &block->discarded_pages))
+ if (uvm_rust_goes_on(status) && uvm_page_mask_init_from_region(mask, region, &block->discarded_pages))
    S
...>
}
