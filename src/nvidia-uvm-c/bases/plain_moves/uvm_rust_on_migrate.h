/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What UVM_MIGRATE works with: a va_block context, which has none of the fields that are mended in 550.
 */
