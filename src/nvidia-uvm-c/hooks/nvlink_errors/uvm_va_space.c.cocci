// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A CPU fault that has let the VA space's lock go, to ask RM for errors of NVLink's, takes it once: it is taken below for all
// that go on. Upstream takes it here as well, and lets it go once.
@@
typedef uvm_va_space_t;
identifier space;
@@
uvm_va_space_cpu_fault(uvm_va_space_t *space, ...)
{
<...
- uvm_va_space_down_read(space);
- if (status != NV_OK)
- 	break;
+ if (status != NV_OK || !uvm_rust_fix_nvlink_lock) {
+ 	uvm_va_space_down_read(space);
+ 	if (status != NV_OK)
+ 		break;
+ }
...>
}
