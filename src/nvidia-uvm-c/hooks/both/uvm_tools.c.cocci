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

// A VA space has few trackers, and few events that have yet to be handed out: see uvm_rust_trackers.h.
@@
expression queues;
identifier makes = {uvm_api_tools_init_event_tracker, create_event_tracker};
symbol event_tracker;
@@
makes(...)
{
<...
+ if (!uvm_rust_tracker_comes(uvm_va_space_get(event_tracker->uvm_file))) {
+ 	status = NV_ERR_INSUFFICIENT_RESOURCES;
+ 	goto fail;
+ }
  event_tracker->is_queue = queues;
...>
}

@@
@@
destroy_event_tracker(...)
{
<...
+ uvm_rust_tracker_goes(uvm_va_space_get(event_tracker->uvm_file));
  fput(event_tracker->uvm_file);
...>
}

@@
expression item;
identifier begins = {uvm_tools_record_block_migration_begin, uvm_tools_record_migration_begin};
@@
begins(...)
{
<...
- item = kmem_cache_alloc(g_tools_block_migration_data_cache, NV_UVM_GFP_FLAGS);
+ item = uvm_rust_pending_alloc(va_space, g_tools_block_migration_data_cache, UvmEventTypeMigration);
...>
}

@@
expression item;
@@
uvm_tools_record_map_remote(...)
{
<...
- item = kmem_cache_alloc(g_tools_block_map_remote_data_cache, NV_UVM_GFP_FLAGS);
+ item = uvm_rust_pending_alloc(va_space, g_tools_block_map_remote_data_cache, UvmEventTypeMapRemote);
...>
}

@@
@@
record_migration_events(...)
{
<...
+ uvm_rust_pending_told(va_space);
  kmem_cache_free(g_tools_block_migration_data_cache, ...);
...>
}

@@
@@
record_map_remote_events(...)
{
<...
+ uvm_rust_pending_told(va_space);
  kmem_cache_free(g_tools_block_map_remote_data_cache, ...);
...>
}

// Ordinary memory that a debugger reads or writes: see uvm_rust_access.h.
@ locks @
// To 565 the lock is taken in another way.
identifier up = {uvm_va_space_up_read, uvm_va_space_up_read_rm};
@@
tools_access_process_memory(...)
{
<+...
up(va_space);
...+>
}

@ access @
identifier locks.up;
@@
tools_access_process_memory(...)
{
<...
+ if (uvm_rust_fix_access) {
+ 	up(va_space);
+ 	uvm_up_read_mmap_lock(mm);
+ 	status = uvm_rust_access(mm, target_va_start, user_va + *bytes, stage_addr, bytes_now, is_write);
+ 	if (status != NV_OK)
+ 		goto exit;
+ 	*bytes += bytes_now;
+ 	continue;
+ }
  status = uvm_hmm_va_block_update_residency_info(block, mm, ...);
...>
}

// Memory for events: see uvm_rust_queues.h.
@ queue_mapped @
@@
map_user_pages(...)
{
<...
  *addr = vmap(...);
+ if (*addr == NULL && uvm_rust_fix_queues)
+ 	status = NV_ERR_NO_MEMORY;
...>
}

@ queue_size @
identifier made = {uvm_api_tools_init_event_tracker, create_event_tracker};
@@
made(...)
{
<...
- params->queueBufferSize > UINT_MAX
+ params->queueBufferSize > uvm_rust_queue_max()
...>
}

@ queue_of_file @
@@
check_vmas(...)
{
<...
+ if (uvm_rust_is_written_back(vma))
+ 	return NV_ERR_INVALID_ARGUMENT;
  addr = vma->vm_end;
...>
}
