/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where uvm_hmm.c copies for a CPU's fault. Its function for that is the one for GPUs' faults, which stays upstream's.
 */
#if UVM_IS_CONFIG_HMM()
#define uvm_va_block_service_copy(processor, to, va_block, retry, service)			\
	(UVM_ID_IS_CPU(processor) ?								\
		uvm_rust_hmm_fault_copy(processor, to, va_block, retry, service) :		\
		uvm_va_block_service_copy(processor, to, va_block, retry, service))
#endif
