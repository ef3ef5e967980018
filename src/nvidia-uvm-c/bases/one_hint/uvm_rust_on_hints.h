/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What upstream calls the function that gives a va_block's prefetch hint, where no other memory has one; and the kind of access,
 * as in write_batch. Only for uvm_rust_flash.c, behind all others.
 */
#define uvm_perf_prefetch_get_hint_va_block	uvm_perf_prefetch_get_hint
#define uvm_perf_prefetch_get_hint_va_block__c	uvm_perf_prefetch_get_hint__c
#define uvm_fault_access_type_t			uvm_fault_type_t
