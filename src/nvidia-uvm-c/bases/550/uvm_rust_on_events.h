/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a perf event's callback is told. tests/seam has this header, too.
 */
#ifndef UVM_RUST_ON_EVENTS_H
#define UVM_RUST_ON_EVENTS_H

#define UVM_RUST_EVENT_SPACE
#define uvm_rust_fault_space(data)	((data)->fault.space)
#define uvm_rust_migration_space(data)	uvm_va_block_get_va_space((data)->migration.block)

#endif
