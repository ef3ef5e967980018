/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The host's memory of a va_block, by NUMA node.
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

#define uvm_rust_resident_on(block, nid)	uvm_va_block_resident_mask_get(block, UVM_ID_CPU, nid)

/* What is made resident on the host, by no eviction, may lie on any node. */
static inline void uvm_rust_on_any_node(uvm_va_block_context_t *context)
{
	context->make_resident.cause = UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE;
	context->make_resident.dest_nid = NUMA_NO_NODE;
}

#define uvm_rust_block_context(service_context)	((service_context)->block_context)

/* What uvm_hmm_va_block_migrate_locked() works with, where a fault has it, and its va_block context. */
#define uvm_rust_hmm_context_t			uvm_service_block_context_t
#define uvm_rust_hmm_context(service_context)	(service_context)
#define uvm_rust_hmm_block_context(context)	((context)->block_context)

#endif
