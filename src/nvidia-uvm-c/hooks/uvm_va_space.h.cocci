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
...
};
