/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whether a chunk of ordinary memory that its va_block gives up can be a va_block's that is nobody's. Here a page
 * leads to its VA space by its chunk's va_block, so it cannot: the fix `nobody` is not there, and the chunk keeps
 * the name that upstream leaves.
 */
#define UVM_RUST_NOBODY		false
