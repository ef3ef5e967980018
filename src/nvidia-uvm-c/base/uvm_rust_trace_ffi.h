/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary to Rust (uvm_rust_ffi.h): the tracepoints, in the kernel's subsystem uvm_rust. docs/trace.md says what each
 * field is, for those who read them; Rust fills them in (ffi/trace.rs).
 */
#ifndef UVM_RUST_TRACE_FFI_H
#define UVM_RUST_TRACE_FFI_H

#include <linux/types.h>

/* X(type, name) for each field of an event, in which it is kept. New ones come last. */
#define UVM_RUST_FIELDS_fault_batch(X) \
	X(__u32, gpu) X(__u32, batch) X(__u32, entries) X(__u32, status) X(__u64, faults) X(__u64, duplicates)
#define UVM_RUST_FIELDS_evict(X) \
	X(__u32, gpu) X(__u32, pid) X(__u64, address) X(__u64, bytes) X(__u32, queue) X(__u32, status)
#define UVM_RUST_FIELDS_discard(X) \
	X(__u32, pid) X(__u32, eager) X(__u64, address) X(__u64, bytes) X(__u64, discarded) X(__u64, skipped) \
	X(__u64, partial) X(__u32, status)
#define UVM_RUST_FIELDS_spill(X) \
	X(__u32, pid) X(__u32, errors) X(__u64, address) X(__u64, bytes) X(__u64, written)

/* What an event says, and says it, if somebody listens. Any context. */
#define UVM_RUST_FIELD(type, name)	type name;
#define UVM_RUST_EVENT(event)									\
	struct uvm_rust_trace_##event { UVM_RUST_FIELDS_##event(UVM_RUST_FIELD) };		\
	void uvm_seam_trace_##event(const struct uvm_rust_trace_##event *of);
#define UVM_RUST_EVENTS(X)	X(fault_batch) X(evict) X(discard) X(spill)
UVM_RUST_EVENTS(UVM_RUST_EVENT)

#endif
