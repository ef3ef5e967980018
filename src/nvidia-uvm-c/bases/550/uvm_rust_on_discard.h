/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What upstream has of a discard: nothing. Only for uvm_rust_discard.c.
 */
