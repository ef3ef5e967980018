/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The boundary between the C of nvidia-uvm.ko and the Rust in it.
 *
 * bindgen reads this file, so it names no type of NVIDIA's: what belongs to
 * upstream crosses as an opaque pointer of one type each (uvm_seam_*), and so does
 * what belongs to Rust (uvm_rust_*). Neither side unwinds into the other.
 *
 * Functions named uvm_rust_* are Rust's and called by C; uvm_seam_* are C's and
 * called by Rust.
 */
#ifndef UVM_RUST_FFI_H
#define UVM_RUST_FFI_H

#include "uvm_rust_base_ffi.h"
#include "uvm_rust_discard_ffi.h"
#include "uvm_rust_evict_ffi.h"
#include "uvm_rust_fault_ffi.h"
#include "uvm_rust_flash_ffi.h"
#include "uvm_rust_prefetch_ffi.h"

#endif /* UVM_RUST_FFI_H */
