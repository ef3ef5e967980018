/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary between the C of nvidia-uvm.ko and the Rust in it.
 *
 * bindgen reads this file, so it knows no type of NVIDIA's but by its tag: what belongs
 * to upstream crosses as an opaque pointer of one type each (of such a tag, or uvm_seam_*),
 * and so does what belongs to Rust (uvm_rust_*). Neither side unwinds into the other.
 *
 * Functions named uvm_rust_* are Rust's and called by C; uvm_seam_* are C's and
 * called by Rust. Others are upstream's, called by Rust as they are: files that include
 * this one after upstream's headers compile only if these are declared there alike.
 */
#ifndef UVM_RUST_FFI_H
#define UVM_RUST_FFI_H

#include "uvm_rust_base_ffi.h"
#include "uvm_rust_discard_ffi.h"
#include "uvm_rust_evict_ffi.h"
#include "uvm_rust_fault_ffi.h"
#include "uvm_rust_flash_ffi.h"
#include "uvm_rust_prefetch_ffi.h"
#include "uvm_rust_trace_ffi.h"

#endif /* UVM_RUST_FFI_H */
