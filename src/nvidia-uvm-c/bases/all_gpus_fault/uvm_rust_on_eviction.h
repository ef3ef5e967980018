/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * There are no GPUs whose memory cannot be evicted, or that cannot fault. Only for uvm_rust_compat.h.
 */
#define uvm_rust_gpu_supports_eviction(gpu)	((void)(gpu), true)
#define uvm_rust_has_non_faultable(va_space)	((void)(va_space), false)
#define uvm_rust_has_fatal_engines()		false
