/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What upstream calls the function that gives a va_block's prefetch hint. Only for uvm_rust_flash.c. */
