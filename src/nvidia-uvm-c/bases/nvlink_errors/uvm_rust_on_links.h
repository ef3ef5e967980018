/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a migration notes of the links that it has used: it adds to a mask, which UVM_MIGRATE clears before,
 * and whose GPUs it asks for errors of NVLink's after. The prefetcher's worker copies between a GPU and the
 * host, and leaves asking to the fault, or the call, that uses the pages.
 */
#define uvm_rust_forget_links(context)	uvm_processor_mask_zero(&(context)->gpus_to_check_for_nvlink_errors)
