// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Who gives back a process' memory that UVM keeps: whoever closes the file, or ours (uvm_rust_orphans.c).
@@
identifier mm;
@@
uvm_api_mm_initialize(...)
{
<...
  mm->state = UVM_VA_SPACE_MM_STATE_ALIVE;
+ uvm_rust_orphans_keep(va_space, uvm_file);
...>
}

@@
identifier release = {uvm_mm_release, uvm_release_mm};
@@
release(...)
{
  ...
+ if (uvm_rust_orphans_taken(va_space)) {
+ 	fput(uvm_file);
+ 	return;
+ }
  if (uvm_va_space_mm_enabled(va_space)) {
-   uvm_va_space_mm_unregister(va_space);
+   uvm_rust_mm_unregister(va_space, uvm_rust_fix_resume);
+   uvm_rust_mm_gone(va_space);
    ...
  }
}

// Managed memory is mapped while the mm of its VA space goes: uvm_rust_mm_gone.h.
@@
expression space;
identifier status;
@@
uvm_mmap(...)
{
<...
(
- UVM_ASSERT(space->va_space_mm.mm);
|
- status = uvm_va_range_create_mmap(space,
+ status = uvm_rust_mm_left(space) ? NV_ERR_NOT_SUPPORTED : uvm_va_range_create_mmap(space,
  ...);
)
...>
}
