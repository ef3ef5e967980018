// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What UVM asks of RM's physical memory allocator (PMA). Its handle is the
 * struct vgpu.
 */
#define pr_fmt(fmt) "vgpu: " fmt

#include "vgpu.h"

#include <linux/export.h>

void vgpu_update_pma_stats(struct vgpu *g)
{
	struct vgpu_rs_counts counts;

	vgpu_rs_pma_counts(g->rs, &counts);
	WRITE_ONCE(g->pma_stats.numPages2m, counts.total_2m);
	WRITE_ONCE(g->pma_stats.numFreePages64k, counts.free_64k);
	WRITE_ONCE(g->pma_stats.numFreePages2m, counts.free_2m);
}

NV_STATUS nvUvmInterfaceGetPmaObject(uvmGpuDeviceHandle device, void **pPma,
				     const UvmPmaStatistics **pPmaPubStats)
{
	struct vgpu *g = (void *)device;

	*pPma = g;
	*pPmaPubStats = &g->pma_stats;
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfaceGetPmaObject);

NV_STATUS nvUvmInterfacePmaRegisterEvictionCallbacks(void *pPma,
						     uvmPmaEvictPagesCallback evictPages,
						     uvmPmaEvictRangeCallback evictRange,
						     void *callbackData)
{
	struct vgpu *g = pPma;

	down_write(&g->evict_lock);
	g->evict_pages = evictPages;
	g->evict_range = evictRange;
	g->evict_data = callbackData;
	up_write(&g->evict_lock);
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfacePmaRegisterEvictionCallbacks);

void nvUvmInterfacePmaUnregisterEvictionCallbacks(void *pPma)
{
	struct vgpu *g = pPma;

	down_write(&g->evict_lock);
	g->evict_pages = NULL;
	g->evict_range = NULL;
	g->evict_data = NULL;
	up_write(&g->evict_lock);
}
EXPORT_SYMBOL(nvUvmInterfacePmaUnregisterEvictionCallbacks);

NV_STATUS nvUvmInterfacePmaAllocPages(void *pPma, NvLength pageCount, NvU64 pageSize,
				      UvmPmaAllocationOptions *options, NvU64 *pPages)
{
	struct vgpu *g = pPma;
	u32 flags = options->flags;
	struct vgpu_rs_pma_request ask = {
		.count = pageCount,
		.page_bytes = pageSize,
		.begin = 0,
		.end = g->vidmem_bytes,
		.contiguous = !!(flags & UVM_PMA_ALLOCATE_CONTIGUOUS),
		.partial = !!(flags & UVM_PMA_ALLOCATE_ALLOW_PARTIAL),
		.pinned = !!(flags & UVM_PMA_ALLOCATE_PINNED),
		.no_zero = !!(flags & UVM_PMA_ALLOCATE_NO_ZERO),
	};
	int err;

	if (flags & UVM_PMA_ALLOCATE_SPECIFY_ADDRESS_RANGE) {
		ask.begin = options->physBegin;
		ask.end = min(ask.end, options->physEnd + 1);
	}
	options->resultFlags = 0;
	options->numPagesAllocated = 0;
	err = vgpu_rs_pma_alloc(g->rs, &ask, pPages);
	if (err)
		return vgpu_to_nv(err);
	options->numPagesAllocated = ask.got;
	if (ask.is_zero)
		options->resultFlags |= UVM_PMA_ALLOCATE_RESULT_IS_ZERO;
	vgpu_update_pma_stats(g);
	return NV_OK;
}
EXPORT_SYMBOL(nvUvmInterfacePmaAllocPages);

void nvUvmInterfacePmaFreePages(void *pPma, NvU64 *pPages, NvLength pageCount, NvU64 pageSize,
				NvU32 flags)
{
	struct vgpu *g = pPma;
	bool contiguous = flags & UVM_PMA_ALLOCATE_CONTIGUOUS;

	vgpu_expect_ok(g, "vidmem to free",
		       vgpu_rs_pma_free(g->rs, pPages, pageCount, pageSize, contiguous));
	vgpu_update_pma_stats(g);
}
EXPORT_SYMBOL(nvUvmInterfacePmaFreePages);

NV_STATUS nvUvmInterfacePmaPinPages(void *pPma, NvU64 *pPages, NvLength pageCount, NvU64 pageSize,
				    NvU32 flags)
{
	struct vgpu *g = pPma;

	return vgpu_to_nv(vgpu_rs_pma_pin(g->rs, pPages, pageCount, pageSize));
}
EXPORT_SYMBOL(nvUvmInterfacePmaPinPages);
