// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A CPU fault that has let the VA space's lock go, to ask RM for errors of NVLink's, takes it once: it is taken below for all
// that go on. Upstream takes it here as well, and lets it go once. One that gives up on ordinary memory does not wait for
// the lock either: see uvm_rust_va_space.h.
@@
typedef uvm_va_space_t;
identifier space, vmf, hmm;
@@
uvm_va_space_cpu_fault(uvm_va_space_t *space, ..., struct vm_fault *vmf, bool hmm)
{
<...
- uvm_va_space_down_read(space);
- if (status != NV_OK)
- 	break;
+ if (status != NV_OK || !uvm_rust_fix_nvlink_lock) {
+ 	if (!uvm_rust_lock_for_fault(space, hmm)) {
+ 		uvm_record_unlock_mmap_lock_read(vmf->vma->vm_mm);
+ 		service_block_context_cpu_free(service_context);
+ 		status = NV_ERR_BUSY_RETRY;
+ 		goto unlock;
+ 	}
+ 	if (status != NV_OK)
+ 		break;
+ }
...>
}

// Nor may the GPUs go that RM is asked about while no lock is held. If it is asked about none, the fault comes again, or it would come here
// without end: see uvm_rust_on_links.h.
@ asked @
typedef uvm_va_space_t;
identifier space;
expression gpus, mm;
@@
uvm_va_space_cpu_fault(uvm_va_space_t *space, ...)
{
<...
+ if (!uvm_rust_retain_asked(space, gpus)) {
+ 	uvm_va_space_up_read(space);
+ 	uvm_record_unlock_mmap_lock_read(mm);
+ 	service_block_context_cpu_free(service_context);
+ 	uvm_rust_rest_asked();
+ 	status = NV_ERR_BUSY_RETRY;
+ 	goto unlock;
+ }
  uvm_va_space_up_read(space);
  uvm_record_unlock_mmap_lock_read(mm);
  status = uvm_global_gpu_check_nvlink_error(gpus);
+ uvm_rust_release_asked(gpus);
...>
}
