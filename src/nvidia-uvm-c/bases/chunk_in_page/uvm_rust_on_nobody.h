/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether the va_block that stands for nobody leads to its VA space. A page leads there by its chunk's va_block, so
 * this one must.
 */
#if UVM_IS_CONFIG_HMM()
#define uvm_rust_name_nobody(block, space)	WRITE_ONCE((block)->hmm.va_space, space)
#else
#define uvm_rust_name_nobody(block, space)	((void)(space))
#endif
