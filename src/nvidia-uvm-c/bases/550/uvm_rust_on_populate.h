/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How pages of the host's are populated for what comes from elsewhere than upstream's moves. Only for
 * uvm_rust_flash_block.h.
 */
#define uvm_rust_populate_for_data	uvm_rust_populate_pages_cpu
