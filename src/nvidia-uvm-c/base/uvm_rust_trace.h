/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The tracepoints as the kernel wants them, which reads this file again and again: it says when what is
 * in it counts. Only for uvm_rust_trace.c.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM uvm_rust

#if !defined(UVM_RUST_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define UVM_RUST_TRACE_H

#include <linux/tracepoint.h>

#define UVM_RUST_COPY(type, name)	__entry->name = of->name;
#define UVM_RUST_TRACE(event, ...)									\
	TRACE_EVENT(event, TP_PROTO(const struct uvm_rust_trace_##event *of), TP_ARGS(of),		\
		    TP_STRUCT__entry(UVM_RUST_FIELDS_##event(__field)),					\
		    TP_fast_assign(UVM_RUST_FIELDS_##event(UVM_RUST_COPY)), TP_printk(__VA_ARGS__))

UVM_RUST_TRACE(fault_batch, "gpu=%u batch=%u entries=%u faults=%llu duplicates=%llu status=0x%x", __entry->gpu,
	       __entry->batch, __entry->entries, __entry->faults, __entry->duplicates, __entry->status);
UVM_RUST_TRACE(evict, "gpu=%u pid=%u address=0x%llx bytes=%llu queue=%s status=0x%x", __entry->gpu, __entry->pid,
	       __entry->address, __entry->bytes, __print_symbolic(__entry->queue, { 0, "free" }, { 1, "unused" },
	       { 2, "discarded" }, { 3, "used" }, { 4, "address" }), __entry->status);
UVM_RUST_TRACE(discard, "pid=%u eager=%u address=0x%llx bytes=%llu discarded=%llu skipped=%llu partial=%llu status=0x%x",
	       __entry->pid, __entry->eager, __entry->address, __entry->bytes, __entry->discarded, __entry->skipped,
	       __entry->partial, __entry->status);
UVM_RUST_TRACE(spill, "pid=%u address=0x%llx bytes=%llu written=%llu errors=%u", __entry->pid, __entry->address,
	       __entry->bytes, __entry->written, __entry->errors);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE uvm_rust_trace
#include <trace/define_trace.h>
