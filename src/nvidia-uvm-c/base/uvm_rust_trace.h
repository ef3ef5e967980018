/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Tracepoints, for perf, bpftrace and tracefs: docs/uapi.md says what each means. One that nobody listens to is a
 * static branch.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM uvm_rust

#if !defined(UVM_RUST_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define UVM_RUST_TRACE_H

#include <linux/tracepoint.h>

/* An event of four numbers. The kernel defines TRACE_EVENT() anew each time that it reads this file. */
#define UVM_RUST_EVENT(name, a, b, c, d, format)							\
	TRACE_EVENT(name, TP_PROTO(u64 a, u64 b, u64 c, u64 d), TP_ARGS(a, b, c, d),			\
		    TP_STRUCT__entry(__field(u64, a) __field(u64, b) __field(u64, c) __field(u64, d)),	\
		    TP_fast_assign(__entry->a = a; __entry->b = b; __entry->c = c; __entry->d = d;),	\
		    TP_printk(format, __entry->a, __entry->b, __entry->c, __entry->d))

UVM_RUST_EVENT(fault_batch, gpu, batch, faults, duplicates, "gpu=%llu batch=%llu faults=%llu duplicates=%llu");
UVM_RUST_EVENT(evict, client, gpu, chunk, queue, "client=%llu gpu=%llu chunk=%llu queue=%llu");
UVM_RUST_EVENT(discard, client, address, length, eager, "client=%llu address=0x%llx length=%llu eager=%llu");
UVM_RUST_EVENT(spill, client, address, bytes, how, "client=%llu address=0x%llx bytes=%llu how=%llu");

#endif

/* Where the next one finds this file: in a folder that Kbuild names. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE uvm_rust_trace
#include <trace/define_trace.h>
