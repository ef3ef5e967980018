/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What else upstream says of a root chunk: that pages of it are discarded by its own discard, which
 * is called with uvm_rust_discard=0. Only for uvm_rust_evict.c.
 */
#include "uvm_rust_fixes.h"

UVM_RUST_C_BODY(uvm_pmm_gpu_mark_root_chunk_discarded);

void uvm_pmm_gpu_mark_root_chunk_discarded(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	/* The end of a fault's service says it without a look whether the GPU has a chunk. */
	if (!chunk && uvm_rust_fix_no_chunk)
		return;
	if (uvm_rust_evict)
		set_queue(pmm, chunk, UVM_RUST_QUEUE_DISCARDED, NULL);
	else
		uvm_pmm_gpu_mark_root_chunk_discarded__c(pmm, chunk);
}
