/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Of upstream from 580 on, what the headers for its discard use beyond shim.h.
 */
#ifndef SEAM_WHOLE_H
#define SEAM_WHOLE_H

#include "shim.h"

#define BUILD_BUG_ON(wrong)	_Static_assert(!(wrong), #wrong)

enum { UVM_VA_RANGE_TYPE_MANAGED = 1 };
typedef struct {
	int type;
	struct { NvU64 start, end; } node;
} uvm_va_range_t;
typedef struct { uvm_va_range_t va_range; } uvm_va_range_managed_t;
#define uvm_va_range_to_managed(range)	container_of(range, uvm_va_range_managed_t, va_range)
uvm_va_range_t *uvm_va_space_iter_first(uvm_va_space_t *va_space, NvU64 start, NvU64 end);
bool uvm_va_space_has_integrated_gpu(uvm_va_space_t *va_space);
NV_STATUS uvm_va_range_discard(uvm_va_range_managed_t *range, uvm_va_block_context_t *context, NvU64 start, NvU64 end,
			       NvU64 flags);

#define UVM_DISCARD_FLAGS_UNMAP	1
void uvm_pmm_gpu_mark_root_chunk_discarded(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk);

#endif
