/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Here a page finds its VA space by its chunk's va_block, so the placeholder va_block must name its VA space.
 */
#if UVM_IS_CONFIG_HMM()
#define uvm_rust_name_nobody(block, space)	WRITE_ONCE((block)->hmm.va_space, space)
#else
#define uvm_rust_name_nobody(block, space)	((void)(space))
#endif
