// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Splits of va_blocks (`driver/discard/split.rs`), which upstream asks for.

// What each asks of its caller is in uvm_rust_discard_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::super::bindings::{self, uvm_va_block_struct, uvm_va_range_struct};
use super::super::block::Block;
use super::super::flash::Split;
use super::super::status::Status;
use super::super::vaspace::{space_of_block, VaSpace};
use super::short;
use crate::driver::discard::{split, status};
use crate::policy::discard::PAGE_BYTES;
use core::ptr::{null_mut, NonNull};

super::super::check_exports!(uvm_va_block_split);

/// Upstream's part of a va_block that is being split.
///
/// Invariant: for `'a` the block exists, and the lock of its VA space is held in write mode.
pub(crate) struct Upstream<'a> {
    lower: Block<'a>,
    new_end: u64,
    new_range: *mut uvm_va_range_struct,
    upper: *mut uvm_va_block_struct,
}

impl<'a> Upstream<'a> {
    /// The block, and the lower half of it afterwards.
    pub(crate) fn lower(&self) -> Block<'a> {
        self.lower
    }

    /// Splits the block; called once. Returns the upper half.
    ///
    /// # Errors
    ///
    /// It gives the `NV_STATUS` of upstream's split.
    pub(crate) fn split(&mut self) -> Result<Block<'a>, u32> {
        let (lower, end, range) = (self.lower.as_ptr(), self.new_end, self.new_range);
        if !self.upper.is_null() {
            return Err(status::INVALID_STATE);
        }
        // SAFETY: by the type's invariant; `upper` is ours for the call.
        let result = unsafe { bindings::uvm_va_block_split__c(lower, end, &mut self.upper, range) };
        Status::check(result).map_err(Status::number)?;
        let upper = NonNull::new(self.upper).ok_or(status::INVALID_STATE)?;
        Ok(Block(upper, self.lower.1))
    }
}

#[no_mangle]
unsafe extern "C" fn uvm_va_block_split(
    block: *mut uvm_va_block_struct,
    new_end: u64,
    upper: *mut *mut uvm_va_block_struct,
    new_range: *mut uvm_va_range_struct,
) -> u32 {
    // SAFETY: I-lock: the lock of the VA space is held, so that the block has one.
    let (block, space) = unsafe {
        let space = NonNull::new(space_of_block(block));
        (NonNull::new(block), space.map(|space| VaSpace::new(space)))
    };
    let (Some(block), Some(space)) = (block, space) else {
        return status::INVALID_ARGUMENT;
    };
    let mut upstream = Upstream {
        lower: Block(block, space),
        new_end,
        new_range,
        upper: null_mut(),
    };
    let pages = (new_end + 1 - upstream.lower.span().first) / PAGE_BYTES;
    let at = short(u32::try_from(pages).unwrap_or(u32::MAX));
    // SAFETY: I-lock.
    let flash = unsafe { Split::of(block.as_ptr(), at.into()) };
    let result = split::split(&mut upstream, flash, at);
    // SAFETY: I-call: null, or a place for it.
    if let (status::OK, Some(place)) = (result, unsafe { upper.as_mut() }) {
        *place = upstream.upper;
    }
    result
}
