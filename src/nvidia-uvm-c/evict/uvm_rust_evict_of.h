/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The eviction of one VA space's chunk. A hook includes this file in the middle of uvm_pmm_gpu.c, as it needs a type that
 * upstream defines there.
 */
__u32 uvm_seam_evict_of(uvm_gpu_t *gpu, struct uvm_seam_space *space)
{
	uvm_pmm_gpu_t *pmm = &gpu->pmm;
	uvm_gpu_root_chunk_t *root_chunk;
	NV_STATUS status = NV_WARN_NOTHING_TO_DO;

	uvm_mutex_lock(&pmm->lock);
	root_chunk = uvm_rust_root_chunk_to_evict(pmm, space);
	if (!IS_ERR_OR_NULL(root_chunk))
		status = evict_root_chunk(pmm, root_chunk, PMM_CONTEXT_DEFAULT);
	uvm_mutex_unlock(&pmm->lock);
	if (status == NV_OK)
		free_chunk(pmm, &root_chunk->chunk);
	return status;
}
