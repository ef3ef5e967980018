/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kind of access that upstream asks for, which it declares as another enumeration and passes as this one. Only for
 * uvm_rust_flash.c, behind all others.
 */
#define uvm_fault_access_type_t			uvm_fault_type_t
