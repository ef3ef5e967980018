// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Copies of ordinary memory to the host that fail: the new pages are given up before
// Linux is told that it is over (uvm_rust_hmm.h).
@ fault @
@@
uvm_hmm_devmem_fault_alloc_and_copy(...)
{
...
- return uvm_va_block_service_copy(
+ return uvm_rust_hmm_fault_copy(
  ...);
}
