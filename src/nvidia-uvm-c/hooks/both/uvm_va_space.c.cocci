// SPDX-License-Identifier: GPL-2.0-only OR MIT
// What a VA space has noted of its faults, for the tools: see uvm_rust_replays.h.
@@
typedef uvm_va_space_t;
uvm_va_space_t *space;
expression gpu;
@@
unregister_gpu(...)
{
<...
  uvm_processor_mask_clear(&space->registered_gpus, gpu->id);
+ uvm_rust_replays_forget(space, gpu);
...>
}

@@
uvm_va_space_t *space;
@@
uvm_va_space_destroy(...)
{
<...
  uvm_perf_heuristics_unload(space);
+ uvm_rust_replays_end(space);
...>
}
