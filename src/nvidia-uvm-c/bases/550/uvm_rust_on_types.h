/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether GPU memory of a type is programs', which can be evicted.
 */
#define uvm_rust_type_is_user(type)	uvm_pmm_gpu_memory_type_is_user(type)
