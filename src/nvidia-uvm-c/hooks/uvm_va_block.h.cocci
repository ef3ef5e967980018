// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Places for our state of a va_block. Zero in a new one; owned by
// uvm_rust_discard.c and uvm_rust_flash.c and protected by the va_block's lock.
@@
@@
struct uvm_va_block_struct {
+ struct uvm_rust_block *uvm_rust;
+ struct uvm_rust_flash_block *uvm_rust_flash;
...
};
