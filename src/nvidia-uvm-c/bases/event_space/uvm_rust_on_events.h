/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a perf event's callback is told: the VA space, which then is not in the event. tests/seam has
 * this header, too.
 */
#ifndef UVM_RUST_ON_EVENTS_H
#define UVM_RUST_ON_EVENTS_H

#define UVM_RUST_EVENT_SPACE		uvm_va_space_t *event_space,
#define uvm_rust_fault_space(data)	event_space
/* Pages that CPU and GPU find in the same page tables (ATS) move without a va_block: NULL in the event. */
#define uvm_rust_migration_space(data)	event_space

#endif
