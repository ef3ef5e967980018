// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A CPU fault on ordinary memory (HMM) that comes while another one of the same va_block
// migrates is tried again, and answers with a flag that was not set by then: with any bits,
// which Linux takes for SIGBUS or SIGSEGV. As 595 does it.
@@
identifier context;
@@
uvm_va_space_cpu_fault(...)
{
<...
  context->cpu_fault.wakeup_time_stamp = 0;
+ context->cpu_fault.did_migrate = false;
...>
}
