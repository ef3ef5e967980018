/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * GPUs whose memory cannot be evicted, or that cannot fault. Only for uvm_rust_compat.h.
 */
static inline bool uvm_rust_gpu_supports_eviction(uvm_gpu_t *gpu)
{
	return uvm_gpu_supports_eviction(gpu);
}

/* Is a GPU registered that cannot fault? Caller holds the VA space's lock. */
static inline bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space)
{
	uvm_gpu_t *gpu;

	for_each_va_space_gpu(gpu, va_space) {
		if (!uvm_processor_mask_test(&va_space->faultable_processors, gpu->id))
			return true;
	}
	return false;
}
