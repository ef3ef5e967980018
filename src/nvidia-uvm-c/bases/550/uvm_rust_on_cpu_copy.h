/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Where uvm_hmm.c copies for a CPU's fault: a hook of its own has it call uvm_rust_hmm_fault_copy(). */
