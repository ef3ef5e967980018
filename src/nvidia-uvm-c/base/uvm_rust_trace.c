// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The tracepoints, which stand where Rust calls these: where a kernel has none, nothing is left of them.
 */
#include "uvm_rust_base_ffi.h"

#define CREATE_TRACE_POINTS
#include "uvm_rust_trace.h"

#define SEAM_TRACE(event)								\
	void uvm_seam_trace_##event(__u64 a, __u64 b, __u64 c, __u64 d)			\
	{										\
		trace_##event(a, b, c, d);						\
	}
SEAM_TRACE(fault_batch)
SEAM_TRACE(evict)
SEAM_TRACE(discard)
SEAM_TRACE(spill)
