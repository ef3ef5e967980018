// SPDX-License-Identifier: GPL-2.0-only OR MIT
@ charge @
typedef uvm_cpu_chunk_alloc_flags_t;
identifier alloc, flags;
@@
uvm_cpu_chunk_alloc_page(..., uvm_cpu_chunk_alloc_flags_t alloc)
{
<...
- flags = NV_UVM_GFP_FLAGS_ACCOUNT;
+ flags = NV_UVM_GFP_FLAGS_ACCOUNT | uvm_rust_charge_flags(alloc);
...>
}

@ again @
typedef uvm_chunk_size_t;
identifier flags, page, size;
expression list E;
@@
uvm_cpu_chunk_alloc(uvm_chunk_size_t size, uvm_cpu_chunk_alloc_flags_t flags, ...)
{
<...
- page = uvm_cpu_chunk_alloc_page(E);
+ page = uvm_rust_charged(flags, size, uvm_cpu_chunk_alloc_page(E));
...>
}
