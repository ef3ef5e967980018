// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A place for our state of a VA space, owned by uvm_rust_seam.c.
@@
@@
struct uvm_va_space_struct {
+ struct uvm_rust_space *uvm_rust;
+ /* Of fixes/uvm_rust_resume.h: whether who gives back a process' memory holds the lock of power management. */
+ bool uvm_rust_pm_locked;
...
};
