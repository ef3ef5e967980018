// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Events are handed out while the channels they are of stay: see uvm_rust_flush.h.
@@
@@
uvm_tools_flush_events(...)
{
<...
+ uvm_rust_flush_begins();
  tools_schedule_completed_events();
+ uvm_rust_flush_ends();
...>
}

@@
expression channel;
@@
tools_schedule_completed_events(...)
{
<...
+ uvm_rust_test_flushes();
  uvm_channel_update_progress_all(channel);
...>
}

// Whoever listens to replays notes the batches of its faults, and hears of those: see uvm_rust_replays.h.
@@
expression space;
@@
uvm_api_tools_event_queue_enable_events(...)
{
<...
  space = tools_event_tracker_va_space(...);
+ if (!uvm_rust_replays_listen(space, params->eventTypeFlags))
+ 	return NV_ERR_NO_MEMORY;
...>
}

@@
expression space;
@@
tools_is_fault_callback_needed(...)
{
<...
- tools_is_event_enabled(space, UvmEventTypeGpuFault)
+ tools_is_event_enabled(space, UvmEventTypeGpuFault) || (uvm_rust_fix_replays && tools_is_event_enabled(space, UvmEventTypeGpuFaultReplay))
...>
}

@@
symbol gpu, va_space, event_data;
@@
uvm_tools_record_fault(...)
{
<...
  UVM_ASSERT(gpu);
+ uvm_rust_replays_note(va_space, gpu, event_data->fault.gpu.buffer_entry, event_data->fault.gpu.batch_id);
...>
}

@@
identifier space;
iterator name list_for_each_entry;
identifier broadcast = {record_replay_event_broadcast, uvm_tools_broadcast_event};
@@
broadcast(...)
{
<...
  list_for_each_entry(space, &g_tools_va_space_list, tools.node) {
+ 	if (!uvm_rust_hears(space))
+ 		continue;
  	...
  }
...>
}
