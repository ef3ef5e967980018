/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of upstream's uvm_va_block.c: the pages of big page table entries that follow one another are one region.
 *
 * Upstream fills a mask of pages with the region of each big entry in turn. Where a va_block has all of its memory on a
 * GPU these are some 32 regions, with each fault that is serviced there, and 1,700 instructions. A hook has it go on
 * behind the run instead; UVM_RUST_MASKS=0 builds the driver without, as what it speeds up is a mask as well.
 */
#ifndef UVM_RUST_BIG_PTES_H
#define UVM_RUST_BIG_PTES_H

#include <linux/bitmap.h>

/* The last bit of the run of set bits that begins at bit @first, which is set, of @map with @size bits. */
static inline size_t uvm_rust_last_of_run(const unsigned long *map, size_t size, size_t first)
{
#ifdef UVM_RUST_MASKS_H
	return find_next_zero_bit(map, size, first + 1) - 1;
#else
	return first;
#endif
}

#endif
