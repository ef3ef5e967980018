// A CPU fault on ordinary memory (HMM) that comes while a GPU is unregistered is tried again: see uvm_rust_va_space.h. Not
// where 570 and later have asked for errors of NVLink's with the lock let go.
@@
typedef uvm_va_space_t;
identifier space, vmf, hmm;
statement S;
@@
uvm_va_space_cpu_fault(uvm_va_space_t *space, ..., struct vm_fault *vmf, bool hmm)
{
<...
- uvm_va_space_down_read(space);
+ if (!uvm_rust_lock_for_fault(space, hmm)) {
+ 	uvm_record_unlock_mmap_lock_read(vmf->vma->vm_mm);
+ 	service_block_context_cpu_free(service_context);
+ 	status = NV_ERR_BUSY_RETRY;
+ 	goto unlock;
+ }
  if (do_sleep) S
...>
}
