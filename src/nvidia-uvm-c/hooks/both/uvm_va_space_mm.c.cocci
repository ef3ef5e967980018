// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A process' memory that is given back as the system goes to sleep: see uvm_rust_resume.h.
@@
expression mm, none_left;
@@
uvm_va_space_mm_shutdown(...)
{
<...
+ uvm_rust_mm_shut_down(va_space);
  wait_event(mm->last_retainer_wait_queue, none_left);
...>
}
