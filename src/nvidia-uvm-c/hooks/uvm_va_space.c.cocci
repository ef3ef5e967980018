// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A CPU fault on ordinary memory (HMM) that comes while a GPU is unregistered is tried again: see uvm_rust_va_space.h.
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

// A CPU fault whose VA space gets no more memory of a GPU is not tried again: see there, too.
@@
typedef uvm_va_space_t;
identifier space, traced;
@@
uvm_va_space_cpu_fault(uvm_va_space_t *space, ...)
{
<...
  traced = space->tools.enabled;
+ status = uvm_rust_cpu_fault_ends(space, status);
...>
}

// What stands for nobody among the VA space's va_blocks is there before a GPU is, and until the last has gone. So is who pays for
// its host memory.
@@
typedef uvm_va_space_t;
uvm_va_space_t *space;
identifier status;
@@
uvm_va_space_create(...)
{
<...
- status = uvm_perf_heuristics_load(space);
+ uvm_rust_opened(space);
+ status = uvm_rust_nobody_of(space);
+ if (status == NV_OK)
+ 	status = uvm_perf_heuristics_load(space);
...>
}

@@
uvm_va_space_t *space;
@@
uvm_va_space_create(...)
{
<...
  uvm_perf_heuristics_unload(space);
+ uvm_rust_nobody_gone(space);
+ uvm_rust_closed(space);
...>
}

@@
uvm_va_space_t *space;
@@
uvm_va_space_destroy(...)
{
<...
  uvm_perf_heuristics_unload(space);
+ uvm_rust_nobody_gone(space);
+ uvm_rust_closed(space);
...>
}
