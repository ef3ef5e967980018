/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a migration notes of the links that it has used.
 */
#define uvm_rust_forget_links(context)	((void)(context))
