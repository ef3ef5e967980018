/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Ranges of managed memory, which are of a type of their own.
 */
#ifndef UVM_RUST_ON_RANGES_H
#define UVM_RUST_ON_RANGES_H

#include "uvm_va_policy.h"
#include "uvm_va_range.h"

typedef uvm_va_range_managed_t uvm_rust_managed_t;
#define uvm_rust_managed(range)		uvm_va_range_to_managed(range)
#define uvm_rust_policy(range)		(&uvm_va_range_to_managed(range)->policy)

#endif
