/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In front of uvm_va_block.c: a va_block of ordinary memory of which another VA space of the same process, or Linux for a
 * CPU, is about to move pages.
 */
#ifndef UVM_RUST_TWO_SPACES_H
#define UVM_RUST_TWO_SPACES_H

#include "uvm_va_block.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_on_spaces.h"

#if UVM_IS_CONFIG_HMM()
void uvm_rust_gives_up(uvm_va_block_t *va_block, uvm_va_block_region_t region);

/*
 * As for munmap(), but the memory stays what it was advised to be. Only the chunks of pages that are there, which these pages keep: one
 * that a migration has got for a page, and let the va_block's lock go, is that migration's.
 */
void uvm_rust_gives_up(uvm_va_block_t *va_block, uvm_va_block_region_t region)
{
	uvm_page_index_t page;
	uvm_gpu_id_t id;

	for_each_gpu_id(id) {
		uvm_va_block_gpu_state_t *state = uvm_va_block_gpu_state_get(va_block, id);

		if (!state || !state->chunks)
			continue;
		for_each_va_block_page_in_region_mask(page, &state->resident, region)
			uvm_rust_release_region(va_block, id, state, uvm_va_block_region_for_page(page));
	}
}
#endif

#endif
