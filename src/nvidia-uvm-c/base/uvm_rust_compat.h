/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Where upstream versions differ by a name or an argument. The seam is written in
 * the names of 550; UVM_RUST_UPSTREAM is the major version of the driver that it is
 * built into (uvm_rust_version.h, written by scripts/seam.sh).
 */
#ifndef UVM_RUST_COMPAT_H
#define UVM_RUST_COMPAT_H

#include "uvm_gpu.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_version.h"
#include "uvm_rust_events.h"

#if UVM_RUST_UPSTREAM < 550

/* A GPU and its parent share one number space, and 535 has no name of its own for it. */
#define UVM_PARENT_ID_MAX_GPUS		UVM_ID_MAX_GPUS
#define uvm_parent_id_gpu_index(id)	uvm_id_gpu_index(id)
typedef uvm_gpu_id_t uvm_parent_gpu_id_t;

static inline uvm_page_mask_t *uvm_rust_resident_mask(uvm_va_block_t *block, uvm_processor_id_t id)
{
	return uvm_va_block_resident_mask_get(block, id);
}

/* 535 does not tell NUMA nodes apart. */
static inline uvm_cpu_chunk_t *uvm_rust_cpu_chunk(uvm_va_block_t *block, int nid, uvm_page_index_t page)
{
	return uvm_cpu_chunk_get_chunk_for_page(block, page);
}

#define for_each_rust_node(nid)		for ((nid) = 0; (nid) < 1; (nid)++)

static inline void uvm_rust_set_resident_page(uvm_va_block_t *block, int nid, uvm_page_index_t page)
{
	uvm_page_mask_set(&block->cpu.resident, page);
	uvm_processor_mask_set(&block->resident, UVM_ID_CPU);
}

static inline void uvm_rust_on_any_node(uvm_va_block_context_t *context)
{
}

#define uvm_rust_is_resident_on(block, nid, page)	true

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

#define uvm_rust_block_context(service_context)	(&(service_context)->block_context)

typedef uvm_va_block_context_t uvm_rust_move_context_t;
#define uvm_rust_move_context_alloc(mm)		uvm_va_block_context_alloc(mm)
#define uvm_rust_move_context_free(context)	uvm_va_block_context_free(context)
#define uvm_rust_move_block_context(context)	(context)

#else

static inline uvm_page_mask_t *uvm_rust_resident_mask(uvm_va_block_t *block, uvm_processor_id_t id)
{
	return uvm_va_block_resident_mask_get(block, id, NUMA_NO_NODE);
}

static inline uvm_cpu_chunk_t *uvm_rust_cpu_chunk(uvm_va_block_t *block, int nid, uvm_page_index_t page)
{
	return uvm_cpu_chunk_get_chunk_for_page(block, nid, page);
}

#define for_each_rust_node(nid)		for_each_possible_uvm_node(nid)

/* The page of this node, which there is, holds what the block has there. */
static inline void uvm_rust_set_resident_page(uvm_va_block_t *block, int nid, uvm_page_index_t page)
{
	uvm_va_block_cpu_set_resident_page(block, nid, page);
}

#define uvm_rust_is_resident_on		uvm_va_block_cpu_is_page_resident_on

/* What is made resident on the host may lie on any node. */
static inline void uvm_rust_on_any_node(uvm_va_block_context_t *context)
{
	context->make_resident.dest_nid = NUMA_NO_NODE;
}

/* From 595 on all GPUs do, and all can fault. */
static inline bool uvm_rust_gpu_supports_eviction(uvm_gpu_t *gpu)
{
#ifdef UVM_RUST_ALL_GPUS_EVICT
	return true;
#else
	return uvm_parent_gpu_supports_eviction(gpu->parent);
#endif
}

static inline bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space)
{
#ifdef UVM_RUST_ALL_GPUS_FAULT
	return false;
#else
	return !uvm_processor_mask_empty(&va_space->non_faultable_processors);
#endif
}

#define uvm_rust_block_context(service_context)	((service_context)->block_context)

/* What uvm_va_block_migrate_locked() takes. */
typedef uvm_service_block_context_t uvm_rust_move_context_t;
#define uvm_rust_move_context_alloc(mm)		uvm_service_block_context_alloc(mm)
#define uvm_rust_move_context_free(context)	uvm_service_block_context_free(context)
#define uvm_rust_move_block_context(context)	((context)->block_context)

#endif

/* Is this GPU counted? Faults of parts of a GPU (MIG) come to one bottom half, which in 580 is the parent's. */
static inline bool uvm_rust_counts(uvm_gpu_t *gpu)
{
#ifdef UVM_RUST_NATIVE
	return !gpu->parent->smc.enabled;
#else
	return true;
#endif
}

#endif
