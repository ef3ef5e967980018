/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Whether invalidations wait for the end of a fault batch, by upstream's name. Only for uvm_rust_fault.c, behind upstream's file. */
