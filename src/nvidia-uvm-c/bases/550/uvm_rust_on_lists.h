/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Upstream's lists of the root chunks that are allocated. It has none of those that were discarded.
 */
#ifndef UVM_RUST_ON_LISTS_H
#define UVM_RUST_ON_LISTS_H

#define uvm_rust_unused_list(pmm)	(&(pmm)->root_chunks.va_block_unused)
#define uvm_rust_discarded_list(pmm)	((struct list_head *)NULL)
#define uvm_rust_used_list(pmm)		(&(pmm)->root_chunks.va_block_used)

#endif
