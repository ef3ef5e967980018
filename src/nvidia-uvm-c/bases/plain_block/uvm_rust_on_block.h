/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#include_next "uvm_rust_on_block.h"

/* What upstream's functions take as well from 550 on. */
#undef UVM_RUST_CONTEXT
#define UVM_RUST_CONTEXT(...)
