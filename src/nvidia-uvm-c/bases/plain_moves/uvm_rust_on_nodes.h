/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The host's memory of a va_block, by NUMA node, and the contexts in which va_blocks are worked on.
 */
#ifndef UVM_RUST_ON_NODES_H
#define UVM_RUST_ON_NODES_H

#include "uvm_va_block.h"
#include "uvm_va_space.h"

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

/* What is made resident on the host, by no eviction, may lie on any node. */
static inline void uvm_rust_on_any_node(uvm_va_block_context_t *context)
{
	context->make_resident.cause = UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE;
	context->make_resident.dest_nid = NUMA_NO_NODE;
}

#define uvm_rust_block_context(service_context)	((service_context)->block_context)

/* What uvm_va_block_migrate_locked() takes. */
typedef uvm_va_block_context_t uvm_rust_move_context_t;
#define uvm_rust_move_context_alloc(mm)		uvm_va_block_context_alloc(mm)
#define uvm_rust_move_context_free(context)	uvm_va_block_context_free(context)
#define uvm_rust_move_block_context(context)	(context)

/* What uvm_perf_heuristics_register_gpu() returns. */
/* Upstream's, which says in 545 whether it could. */
#define UVM_RUST_REGISTERED			typeof(uvm_perf_heuristics_register_gpu(NULL, NULL))

#endif
