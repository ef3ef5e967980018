/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The SSD tier: what its C files have in common.
 *
 *   uvm_rust_flash.c        va_blocks, and where upstream's functions lead to Rust
 *   uvm_rust_flash_block.h  va_blocks, what needs upstream's statics; in uvm_va_block.c
 *   uvm_rust_flash_io.c     the device: opening, encryption, reading and writing
 *
 * Locks, outermost first: a tenant's turn; a VA space's lock; uvm_rust_flash_attach_lock, which is only tried here; a
 * va_block's lock; the table's mutex, and the tier's lock, a spinlock, both in Rust. Under a va_block's lock there is no
 * I/O. Who attaches or detaches has uvm_rust_flash_attach_lock outside of all, and only tries a VA space's.
 */
#ifndef UVM_RUST_FLASH_H
#define UVM_RUST_FLASH_H

#include <linux/jump_label.h>
#include <linux/wait.h>

#include "uvm_rust_ffi.h"
#include "uvm_rust_hooks.h"

/*
 * On if uvm_rust_flash=1: without it, every hook is a nop. With it, host memory is counted by
 * va_block, as a device may be attached at any time.
 */
DECLARE_STATIC_KEY_FALSE(uvm_rust_flash_key);
/*
 * On from the first attachment on, which turns it on before anybody can spill: without it no
 * va_block has a state, so nothing is on flash and the other hooks are nops. Who finds it off
 * under a va_block's lock, or a VA space's for writing, is right until letting go of that:
 * spills take both.
 */
DECLARE_STATIC_KEY_FALSE(uvm_rust_flash_used_key);

/* An open device, which Rust counts. Fields are fixed while it is. */
struct uvm_seam_flash_dev {
	struct file *file;
	struct crypto_skcipher *tfm;
	/* Told when a read or a spill ends, or there is room. Waited for without locks but a VA space's. */
	wait_queue_head_t wait;
};

#endif
