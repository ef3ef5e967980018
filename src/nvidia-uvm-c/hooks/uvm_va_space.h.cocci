// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A place for our state of a VA space, owned by uvm_rust_seam.c.
@@
@@
struct uvm_va_space_struct {
+ struct uvm_rust_space *uvm_rust;
+ /* Of fixes/uvm_rust_hmm_pages.c, set while the VA space may have GPUs. */
+ struct uvm_va_block_struct *uvm_rust_nobody;
+ /* Of fixes/uvm_rust_va_space.h: whom host memory is charged to without an mm. */
+ struct mem_cgroup *uvm_rust_payer;
+ /* Of fixes/uvm_rust_orphans.c, under va_space_mm.lock: its own file while a process' memory is kept, what becomes of that, and by whom. */
+ struct file *uvm_rust_kept;
+ int uvm_rust_orphan;
+ struct work_struct uvm_rust_ends;
+ /* Of fixes/uvm_rust_resume.h: whether who gives back a process' memory holds the lock of power management. */
+ bool uvm_rust_pm_locked;
+ /* Of fixes/uvm_rust_replaced.h, under its lock: whether a range of it is being mapped, in place of what Linux has unmapped. */
+ bool uvm_rust_maps;
...
};
