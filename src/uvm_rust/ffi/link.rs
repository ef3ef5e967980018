// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `UVM_MIGRATE` between two va_blocks.

// What it asks of its caller is in uvm_rust_base_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::bindings;
use super::block::Block;
use super::space::{self, gpu_of};
use super::vaspace::{space_of_block, LockedVaSpace, VaSpace};
use core::ptr::NonNull;

super::check_exports!(uvm_rust_link_next);

#[no_mangle]
unsafe extern "C" fn uvm_rust_link_next(
    of: *mut bindings::uvm_va_block_struct,
    dst: u32,
    bytes: u64,
) {
    // SAFETY: I-call and I-lock: the VA space's lock keeps its va_blocks, and the driver's object of it (I-space).
    unsafe {
        let (Some(block), Some(space)) = (NonNull::new(of), NonNull::new(space_of_block(of)))
        else {
            return;
        };
        let link = space::of(space.as_ptr()).and_then(|state| state.link());
        let Some(link) = link.filter(|link| link.is_shared(gpu_of(dst))) else {
            return;
        };
        let space = VaSpace::new(space);
        link.wait(&LockedVaSpace::held(space), Block(block, space), bytes);
    }
}
