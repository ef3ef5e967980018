// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What becomes of discarded pages where upstream moves pages: they are dropped where others would copy them, or are live
//! again (`driver/discard/drops.rs`).

// What each asks of its caller is in uvm_rust_discard_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::super::bindings::{
    uvm_rust_block, uvm_rust_mask, uvm_seam_context, uvm_va_block_struct,
};
use super::super::block::LockedBlock;
use super::super::vaspace::Context;
use super::{memory, read};
use crate::driver::discard::{drops, status};

super::super::check_exports!(
    uvm_rust_block_drop_stale,
    uvm_rust_block_drop_needless,
    uvm_rust_block_drop_leaving,
    uvm_rust_block_made_resident,
);

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_drop_stale(
    of: *mut uvm_va_block_struct,
    context: *mut uvm_seam_context,
    mut state: *mut uvm_rust_block,
    pages: *const uvm_rust_mask,
    resident_at_destination: *const uvm_rust_mask,
) -> u32 {
    // SAFETY: I-own and I-lock for the block, I-call for the rest.
    unsafe {
        let (pages, there) = (read(pages), read(resident_at_destination));
        match (LockedBlock::of_c(of, &mut state), Context::lent(context)) {
            (Some(mut block), Some(context)) => drops::stale(&mut block, &context, &pages, &there),
            _ => status::INVALID_ARGUMENT,
        }
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_drop_needless(
    of: *mut uvm_va_block_struct,
    state: *mut uvm_rust_block,
    leaving: *const uvm_rust_mask,
) -> u32 {
    // SAFETY: as the called function's contract says.
    unsafe { drop_needless(of, state, leaving) }
}

/// Drops what is discarded of the pages `leaving` ([`drops::needless`]).
///
/// # Safety
///
/// I-own and I-lock for the block, which has this state or none; I-call for the mask.
unsafe fn drop_needless(
    of: *mut uvm_va_block_struct,
    mut state: *mut uvm_rust_block,
    leaving: *const uvm_rust_mask,
) -> u32 {
    // SAFETY: by this function's contract.
    unsafe {
        let leaving = read(leaving);
        LockedBlock::of_c(of, &mut state).map_or(status::INVALID_ARGUMENT, |mut block| {
            drops::needless(&mut block, &leaving)
        })
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_drop_leaving(
    of: *mut uvm_va_block_struct,
    state: *mut *mut uvm_rust_block,
    resident: *const uvm_rust_mask,
) {
    // SAFETY: I-own and I-lock for the block, I-call for the rest. Both are read while the block is locked, and stay where
    // they are although its lock is let go in between: upstream frees the GPU's part of a block, with the mask, only with
    // the VA space's lock in write mode, which this thread has. A copy of the state's address is of no use then.
    drops::leaving(|| unsafe { drop_needless(of, *state, resident) });
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_block_made_resident(
    of: *mut uvm_va_block_struct,
    mut state: *mut uvm_rust_block,
    number: u32,
    pages: *const uvm_rust_mask,
    resident_there: *const uvm_rust_mask,
    resident_host: *const uvm_rust_mask,
    evicted: bool,
) {
    // SAFETY: I-own and I-lock for the block, I-call for the masks.
    unsafe {
        let (pages, there, host) = (read(pages), read(resident_there), read(resident_host));
        if let Some(mut block) = LockedBlock::of_c(of, &mut state) {
            let memory = memory(number);
            drops::made_resident(&mut block, memory, &pages, &there, &host, evicted);
        }
    }
}
