// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A VA space in which upstream is to discard by itself.

use super::bindings;
use super::vaspace::{Context, LockedVaSpace};

/// A VA space, and what upstream works with there.
pub(crate) struct Opened<'a> {
    // It goes first: the process' memory is kept by the lock.
    context: Context<'a>,
    space: LockedVaSpace<'a>,
}

impl<'a> Opened<'a> {
    /// Gets what upstream works with. Without memory the VA space comes back.
    pub(crate) fn new(space: LockedVaSpace<'a>) -> Result<Self, LockedVaSpace<'a>> {
        // SAFETY: `self` has both, and gives the context back first.
        match unsafe { Context::new(space.mm()) } {
            Some(context) => Ok(Self { context, space }),
            None => Err(space),
        }
    }

    /// Gives back what upstream works with; the VA space stays locked.
    pub(crate) fn close(self) -> LockedVaSpace<'a> {
        drop(self.context);
        self.space
    }

    /// Discards what the managed range that holds `at` has up to `last`. Returns an `NV_STATUS`, and the last address
    /// of that.
    pub(crate) fn discard(&mut self, at: u64, mut last: u64, eager: bool) -> (u32, u64) {
        let (space, context) = (self.space.space.as_ptr(), self.context.as_ptr());
        // SAFETY: the VA space is locked, and the context open; `last` is ours for the call.
        let result =
            unsafe { bindings::uvm_seam_native_discard(space, context, at, eager, &mut last) };
        (result, last)
    }
}
