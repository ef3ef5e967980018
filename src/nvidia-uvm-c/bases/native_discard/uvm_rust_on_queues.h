/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What else upstream says of a root chunk: that pages of it are discarded by its own discard, which
 * is called with uvm_rust_discard=0. Only for uvm_rust_evict.c.
 */
UVM_RUST_C_BODY(uvm_pmm_gpu_mark_root_chunk_discarded);

void uvm_pmm_gpu_mark_root_chunk_discarded(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk)
{
	if (uvm_rust_evict)
		set_queue(pmm, chunk, UVM_RUST_QUEUE_DISCARDED, NULL);
	else
		uvm_pmm_gpu_mark_root_chunk_discarded__c(pmm, chunk);
}
