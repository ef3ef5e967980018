/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * GPUs whose memory cannot be evicted, or that cannot fault. Only for uvm_rust_compat.h.
 */
static inline bool uvm_rust_gpu_supports_eviction(uvm_gpu_t *gpu)
{
	return uvm_parent_gpu_supports_eviction(gpu->parent);
}

/* Is a GPU registered that cannot fault? Caller holds the VA space's lock, or may be told what is no longer so. */
static inline bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space)
{
	return !uvm_processor_mask_subset(&va_space->registered_gpus, &va_space->faultable_processors);
}
