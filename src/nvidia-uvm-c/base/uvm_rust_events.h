/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What upstream's versions tell a perf event's callback: a part of uvm_rust_compat.h, which
 * knows UVM_RUST_UPSTREAM. It stands alone as tests/seam has it too.
 */
#ifndef UVM_RUST_EVENTS_H
#define UVM_RUST_EVENTS_H

/* A perf event's callback is told the VA space from 580 on, instead of in the event. */
#if UVM_RUST_UPSTREAM < 580
#define UVM_RUST_EVENT_SPACE
#define uvm_rust_fault_space(data)	((data)->fault.space)
#define uvm_rust_migration_space(data)	uvm_va_block_get_va_space((data)->migration.block)
#else
#define UVM_RUST_EVENT_SPACE		uvm_va_space_t *event_space,
#define uvm_rust_fault_space(data)	event_space
/* Pages that CPU and GPU find in the same page tables (ATS) move without a va_block: NULL in the event. */
#define uvm_rust_migration_space(data)	event_space
#endif

#endif
