/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where upstream's fault loop serves one GPU: what of its statics has other arguments where it serves a parent, and
 * the loop's name. Only for uvm_rust_on_fault.h.
 */
#define uvm_rust_base_gpu_va_space_of_part(va_space, gpu)					\
	uvm_gpu_va_space_get_by_parent_gpu(va_space, (gpu)->parent)
#define uvm_rust_base_set_gpu(entry, gpu)		((void)(entry))
#define uvm_rust_base_set_fatal_gpu(batch, gpu)		((void)(batch))
#define uvm_rust_base_flush(gpu, how, type, batch)	fault_buffer_flush_locked(gpu, how, type, batch)
#define uvm_rust_base_cancel_va(gpu, entry, mode)	cancel_fault_precise_va(gpu, entry, mode)
#define uvm_rust_base_cancel_batch_tlb(gpu, batch, reason)	cancel_fault_batch_tlb(gpu, batch, reason)

static void service(uvm_gpu_t *gpu);

void uvm_gpu_service_replayable_faults(uvm_gpu_t *gpu)
{
	service(gpu);
}

void uvm_seam_fault_upstream(uvm_gpu_t *gpu)
{
	uvm_gpu_service_replayable_faults__c(gpu);
}
