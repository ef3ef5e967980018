// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A move of ordinary memory ends with chunks that no page has gone to: its va_block gives them up (uvm_rust_anew.h).
@ anew @
identifier block, given;
expression P, R;
@@
uvm_va_block_retry_deinit(..., uvm_va_block_t *block)
{
<...
  if (uvm_va_block_is_hmm(block))
- 	uvm_pmm_gpu_free(P, given, NULL);
+ 	uvm_rust_free_unused(block, given);
  else
  	uvm_pmm_gpu_unpin_allocated(R, given, block);
...>
}
