/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What else upstream says of a root chunk: nothing. Only for uvm_rust_evict.c.
 */
