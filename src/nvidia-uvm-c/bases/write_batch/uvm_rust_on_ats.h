/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether invalidations wait for the end of a fault batch, where upstream names it for writes. Only for uvm_rust_fault.c,
 * behind upstream's file.
 */
#define tlb_batch_pending	write_faults_in_batch
