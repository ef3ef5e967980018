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
