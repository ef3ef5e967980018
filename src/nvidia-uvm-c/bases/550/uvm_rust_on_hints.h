/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What upstream calls the function that gives a va_block's prefetch hint, and the kind of access that it asks for. Only for
 * uvm_rust_flash.c, behind all others.
 */
