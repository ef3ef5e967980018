// SPDX-License-Identifier: GPL-2.0-only OR MIT
// What /proc/PID/fdinfo says of an open file.
@@
@@
struct file_operations uvm_fops = {
  ...,
+ .show_fdinfo = uvm_rust_show_fdinfo,
  .owner = THIS_MODULE,
};

// A batch of ranges is copied from and to its process without the lock of power management.
@@
identifier filp, cmd, arg, ret;
@@
uvm_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
  long ret;
+ if (cmd == UVM_RUST_DISCARD_BATCH)
+ 	return uvm_rust_discard_batch(filp, arg);
  ...
}
