// SPDX-License-Identifier: GPL-2.0-only OR MIT
// No flush of the tools' events looks at a channel that goes: see uvm_rust_flush.h.
@@
expression channel;
@@
channel_destroy(...)
{
<...
+ uvm_rust_flushes_end();
  proc_remove(channel->procfs.pushes);
...>
}
