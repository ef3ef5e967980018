// SPDX-License-Identifier: GPL-2.0-only OR MIT
// What /proc/PID/fdinfo says of an open file.
@@
@@
struct file_operations uvm_fops = {
  ...,
+ .show_fdinfo = uvm_rust_fdinfo,
  .owner = THIS_MODULE,
};

// Our calls copy from and to their process without the lock of power management. A signal stops none of upstream's,
// and the system does not go to sleep while one is under way.
@@
identifier filp, cmd, arg, ret;
@@
uvm_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
  long ret;
+ if (uvm_rust_ioctl(filp, cmd, arg, &ret)) {
+ 	uvm_thread_assert_all_unlocked();
+ 	return ret;
+ }
  ...
- ret = uvm_ioctl(filp, cmd, arg);
+ ret = -EAGAIN;
+ if (uvm_rust_call_begins()) {
+ 	ret = uvm_rust_ioctl_whole(uvm_ioctl, filp, cmd, arg);
+ 	uvm_rust_call_ends();
+ }
  ...
}

// A VA space whose end is left to a thread of the driver's.
@@
expression item, va_space;
identifier closed = {uvm_release, uvm_release_va_space};
@@
closed(...)
{
<...
- nv_kthread_q_item_init(item, uvm_release_deferred, va_space);
+ nv_kthread_q_item_init(item, uvm_rust_release_deferred, va_space);
...>
}

// Managed memory of a process that ends, whoever takes it down.
@@
identifier vma;
@@
uvm_vm_close_managed(struct vm_area_struct *vma)
{
<...
- current->mm == NULL
+ uvm_rust_is_ending(vma)
...>
}
