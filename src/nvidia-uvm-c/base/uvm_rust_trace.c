// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The C seam of the tracepoints: the kernel's macros make them, which Rust cannot use.
 */
#include "uvm_rust_trace_ffi.h"

#define CREATE_TRACE_POINTS
#include "uvm_rust_trace.h"

#define DEFINE_CALL(event)								\
	void uvm_seam_trace_##event(const struct uvm_rust_trace_##event *of)		\
	{										\
		trace_##event(of);							\
	}
UVM_RUST_EVENTS(DEFINE_CALL)
