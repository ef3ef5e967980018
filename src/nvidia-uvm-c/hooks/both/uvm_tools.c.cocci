// SPDX-License-Identifier: GPL-2.0-only OR MIT
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
