// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A page that is resident nowhere is not moved because a GPU has used it much: it was dropped, or it is on an SSD, from which it
// would be read by the thread that services the faults of all processes. The caller holds the va_block's lock.
@@
identifier block;
expression hint;
expression list args;
symbol page_index;
@@
service_va_block_locked(...)
{
<...
+ if (uvm_rust_is_nowhere(block, page_index))
+ 	continue;
  hint = uvm_perf_thrashing_get_hint(block, args);
...>
}
