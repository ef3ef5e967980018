/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What upstream calls the function that gives a va_block's prefetch hint, where no other memory has one. Only for uvm_rust_flash.c,
 * behind all others.
 */
/* The kind of access is write_batch's. */
#include_next "uvm_rust_on_hints.h"

#define uvm_perf_prefetch_get_hint_va_block	uvm_perf_prefetch_get_hint
#define uvm_perf_prefetch_get_hint_va_block__c	uvm_perf_prefetch_get_hint__c
