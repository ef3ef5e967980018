/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How a page of ordinary memory that no va_block leads to goes to the host. Only for uvm_rust_hmm.h.
 * Upstream's copy does not say whether it could.
 */
static NV_STATUS uvm_hmm_pmm_gpu_evict_pfn(unsigned long pfn);

NV_STATUS uvm_rust_hmm_evict_pfn(unsigned long pfn)
{
	return uvm_hmm_pmm_gpu_evict_pfn(pfn);
}
