/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the hooks in hooks/ call. Every patched file sees it: Kbuild includes it
 * in front of them.
 */
#ifndef UVM_RUST_HOOKS_H
#define UVM_RUST_HOOKS_H

struct uvm_pmm_gpu_struct;
struct uvm_gpu_chunk_struct;

void uvm_rust_chunk_start_eviction(struct uvm_pmm_gpu_struct *pmm, struct uvm_gpu_chunk_struct *chunk);
/* @context: a uvm_va_block_context_t, which has no tag to declare it by. */
void uvm_rust_clear_hmm_pfns(void *context);

#endif
