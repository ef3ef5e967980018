/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Whether upstream's loop services a parent GPU's faults, though there is one of ours. One for each GPU of a parent, it does not. */
#define uvm_rust_served_in_c(parent_gpu)	((void)(parent_gpu), false)
