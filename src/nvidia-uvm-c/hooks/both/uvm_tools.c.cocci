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
