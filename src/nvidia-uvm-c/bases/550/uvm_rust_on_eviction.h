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
	return !uvm_processor_mask_empty(&va_space->non_faultable_processors);
}

/*
 * Is a GPU in use on which a copy engine's access without a mapping is fatal, as before Volta? Of any VA space: the GPUs of one
 * may go while its lock is not held.
 */
static inline bool uvm_rust_has_fatal_engines(void)
{
	bool has = false;
	size_t i;

	uvm_spin_lock_irqsave(&g_uvm_global.gpu_table_lock);
	for (i = 0; i < ARRAY_SIZE(g_uvm_global.parent_gpus); i++) {
		const uvm_parent_gpu_t *gpu = g_uvm_global.parent_gpus[i];

		has |= gpu && !gpu->non_replayable_faults_supported;
	}
	uvm_spin_unlock_irqrestore(&g_uvm_global.gpu_table_lock);
	return has;
}
