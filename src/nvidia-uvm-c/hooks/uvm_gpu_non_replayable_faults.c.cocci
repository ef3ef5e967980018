// SPDX-License-Identifier: GPL-2.0-only OR MIT
// One fault that cannot be serviced takes no other of its batch with it. Before 560 the loop serves a GPU, and not its parent.
@@
identifier serves = {uvm_parent_gpu_service_non_replayable_fault_buffer, uvm_gpu_service_non_replayable_fault_buffer};
expression faults, gpu, i;
idexpression status;
@@
serves(...)
{
<...
  status = service_fault(gpu, &faults.fault_cache[i]);
+ status = uvm_rust_fault_ended(status, &faults.fault_service_tracker);
...>
}

// A fault whose page has to come from an SSD comes again, and the thread that services all faults does others' until then.
@@
identifier serves = {service_fault_once, service_fault};
idexpression state;
symbol user_channel, fault_entry;
@@
serves(...)
{
<...
+ state = uvm_rust_copy_again(user_channel, state);
  if (state == NV_OK && !fault_entry->is_fatal) { ... }
...>
}

@@
identifier serves = {uvm_parent_gpu_service_non_replayable_fault_buffer, uvm_gpu_service_non_replayable_fault_buffer};
type T;
identifier of;
symbol cached_faults;
@@
serves(T *of)
{
<...
- cached_faults > 0
+ cached_faults > 0 && !uvm_rust_copies_end(uvm_rust_parent_of(of))
...>
}
