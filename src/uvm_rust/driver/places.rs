// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Where the pages of a VA space are: `policy/stats/places.rs` on upstream's VA space.
//!
//! The walk takes the VA space's lock in read mode, and within it one va_block's at a time, in upstream's order. The
//! lock of a process' memory is not needed, as nothing is mapped or moved.

use crate::ffi::block::Walk;
use crate::ffi::seam::VaSpace;
use crate::ffi::time;
use crate::policy::discard::Memory;
use crate::policy::stats::places::{self, Machine, Places, Range};

/// Counts the bytes of a VA space's managed memory by where they are; `None` if there are too many places to look at,
/// or its lock is not to be had. Sleeps.
pub(crate) fn bytes(space: VaSpace<'_>) -> Option<Places> {
    let mut walk = Walking { space, walk: None };
    places::count(&mut walk).map(Places::bytes)
}

/// A VA space that is walked.
struct Walking<'a> {
    space: VaSpace<'a>,
    /// The VA space, between `enter` and `leave`.
    walk: Option<Walk<'a>>,
}

impl Machine for Walking<'_> {
    fn enter(&mut self) -> bool {
        if self.walk.is_none() {
            self.walk = self.space.try_lock().map(Walk::new);
        }
        self.walk.is_some()
    }

    fn leave(&mut self) {
        self.walk = None;
    }

    fn range(&mut self, from: u64) -> Option<Range> {
        let range = self.walk.as_mut()?.choose_range(from, u64::MAX)?;
        Some(Range {
            span: range.span(),
            managed: range.facts().managed,
        })
    }

    fn pages(&mut self, at: u64) -> Places {
        let Some(walk) = &mut self.walk else {
            return Places::default();
        };
        if walk.choose_block(at).is_none() || !walk.lock() {
            return Places::default();
        }
        let found = walk.with_locked(|locked| Places {
            host: match locked.block.held(Memory::HOST) {
                Some(held) => held.resident.count().into(),
                None => 0,
            },
            ssd: locked.block.stored().count().into(),
        });
        walk.unlock();
        found.unwrap_or_default()
    }

    fn nap(&mut self) {
        time::nap();
    }

    fn rest(&mut self) -> bool {
        time::rest()
    }
}
