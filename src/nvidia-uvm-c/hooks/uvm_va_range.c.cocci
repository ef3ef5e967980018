// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Managed memory that is mapped in place of ordinary memory: see uvm_rust_replaced.h.
@@
typedef uvm_va_space_t;
identifier space, mm, status;
@@
uvm_va_range_create_mmap(uvm_va_space_t *space, struct mm_struct *mm, ...)
{
<...
+ space->uvm_rust_maps = true;
  status = uvm_hmm_va_block_reclaim(space, mm, ...);
+ space->uvm_rust_maps = false;
...>
}
