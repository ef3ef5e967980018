/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether the va_block that stands for nobody leads to its VA space. A page does so by itself: the va_block is a dead
 * one, which has none.
 */
#define uvm_rust_name_nobody(block, space)	((void)(space))
