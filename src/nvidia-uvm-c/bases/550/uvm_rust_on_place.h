/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where in its va_block a page of ordinary memory may be, by its chunk: where the chunk says. A split and mremap() tell
 * the chunk. Caller holds the PMM's list lock, under which they do so.
 */
#define uvm_rust_place_of(chunk)	uvm_va_block_region_for_page((chunk)->va_block_page_index)
