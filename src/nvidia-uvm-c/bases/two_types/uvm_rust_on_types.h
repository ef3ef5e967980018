/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether GPU memory of a type is programs', which can be evicted: there are two types.
 */
#define uvm_rust_type_is_user(type)	((type) == UVM_PMM_GPU_MEMORY_TYPE_USER)
