/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The context in which UVM_MIGRATE works on a va_block. Only for uvm_rust_compat.h.
 */
/* What uvm_va_block_migrate_locked() takes. */
typedef uvm_service_block_context_t uvm_rust_move_context_t;
#define uvm_rust_move_context_alloc(mm)		uvm_service_block_context_alloc(mm)
#define uvm_rust_move_context_free(context)	uvm_service_block_context_free(context)
#define uvm_rust_move_block_context(context)	((context)->block_context)
