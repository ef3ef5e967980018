/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a chunk of ordinary memory that its va_block gives up can be a va_block's that is nobody's.
 */
#define UVM_RUST_NOBODY		true
