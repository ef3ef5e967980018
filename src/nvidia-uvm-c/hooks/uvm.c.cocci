// SPDX-License-Identifier: GPL-2.0-only OR MIT
// What /proc/PID/fdinfo says of an open file.
@@
@@
struct file_operations uvm_fops = {
  ...,
+ .show_fdinfo = uvm_rust_show_fdinfo,
  .owner = THIS_MODULE,
};
