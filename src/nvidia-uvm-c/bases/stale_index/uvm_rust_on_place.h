/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where in its va_block a page of ordinary memory may be, by its chunk: anywhere. A split and mremap() leave a chunk's
 * page index as it was.
 */
#define uvm_rust_place_of(chunk)	uvm_va_block_region(0, PAGES_PER_UVM_VA_BLOCK)
