/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a parent GPU has of its fault buffer.
 */
#ifndef UVM_RUST_ON_FAULT_BUFFER_H
#define UVM_RUST_ON_FAULT_BUFFER_H

#include "uvm_gpu.h"

typedef uvm_replayable_fault_buffer_info_t uvm_rust_ring_t;
#define uvm_rust_fault_buffer(parent_gpu)	(&(parent_gpu)->fault_buffer_info)

#endif
