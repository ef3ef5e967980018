/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Whether a page of a GPU's is a VA space's: it says so by itself, and uvm_hmm.c asks it. */
