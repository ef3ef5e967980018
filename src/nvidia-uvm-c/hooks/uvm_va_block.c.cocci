// Evicting part of a block of ordinary memory (HMM): upstream hands Linux the
// page frame numbers of the whole block, of which only the evicted part was set.
@@
@@
uvm_va_block_evict_chunks(...)
{
<...
  pages_to_evict = &block_context->caller_page_mask;
+ uvm_rust_clear_hmm_pfns(block_context);
...>
}
