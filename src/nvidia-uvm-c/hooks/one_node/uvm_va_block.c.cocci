// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Pages that go from one GPU to another by way of the host are allocated by the copy.
@ staging @
identifier block, charged;
expression E;
@@
block_copy_resident_pages_between(uvm_va_block_t *block, ...)
{
<...
- uvm_memcg_context_start(&charged, E);
+ uvm_rust_memcg_context_start(&charged, block, E);
...>
}
