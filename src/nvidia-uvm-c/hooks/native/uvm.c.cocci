// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A process' memory that is given back as the system goes to sleep: see uvm_rust_resume.h.
@@
identifier release = {uvm_mm_release, uvm_release_mm};
@@
release(...)
{
<...
- uvm_va_space_mm_unregister(va_space);
+ uvm_rust_mm_unregister(va_space, uvm_rust_fix_resume);
...>
}
