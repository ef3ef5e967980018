/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The range that a va_block is split for.
 */
#define UVM_RUST_SPLIT_RANGE		struct uvm_va_range_struct
