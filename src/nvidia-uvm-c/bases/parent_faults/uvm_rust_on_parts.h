/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether upstream's loop services a parent GPU's faults, though there is one of ours: those of parts of a GPU (MIG), which come in one
 * batch.
 */
#define uvm_rust_served_in_c(parent_gpu)	((parent_gpu)->smc.enabled)
