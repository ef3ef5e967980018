// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Splits of va_blocks: `policy/discard/split.rs` on what is discarded of a block.

use super::status;
use crate::ffi::block::{Block, LockedBlock};
use crate::ffi::discard::split::Upstream;
use crate::ffi::flash::Split;
use crate::mem::charged_box;
use crate::policy::discard::split::{split as split_by, Half, Machine};
use crate::policy::discard::BlockState;
use kernel::prelude::*;

/// Splits a va_block at page `at`, with the lock of its VA space held in write mode. Returns an `NV_STATUS`.
pub(crate) fn split(upstream: &mut Upstream<'_>, flash: Split, at: u16) -> u32 {
    let mut splitting = Splitting {
        lower: upstream.lower(),
        upper: None,
        upstream,
        at,
        flash,
        locked: None,
        made: None,
    };
    split_by(&mut splitting).map_or_else(|failed| failed, |()| status::OK)
}

/// A split of a va_block that is under way, as upstream has asked for it.
struct Splitting<'u, 'a> {
    upstream: &'u mut Upstream<'a>,
    lower: Block<'a>,
    /// The upper half, once upstream has made it.
    upper: Option<Block<'a>>,
    at: u16,
    flash: Split,
    /// The half that is locked.
    locked: Option<LockedBlock<'a>>,
    /// The state that `copy` has made, until the upper half gets it.
    made: Option<KBox<BlockState>>,
}

impl Splitting<'_, '_> {
    /// The discard state of the locked half.
    fn state(&mut self) -> Option<&mut BlockState> {
        self.locked.as_mut()?.state()
    }
}

impl Machine for Splitting<'_, '_> {
    type Error = u32;

    const NO_MEMORY: u32 = status::NO_MEMORY;

    fn before(&mut self) -> Result<(), u32> {
        self.flash.before().map_err(|_| status::NO_MEMORY)
    }

    fn lock(&mut self, half: Half) {
        let block = match half {
            Half::Lower => Some(self.lower),
            Half::Upper => self.upper,
        };
        self.locked = block.map(Block::lock);
    }

    fn unlock(&mut self, _: Half) {
        self.locked = None;
    }

    fn copy(&mut self) -> bool {
        let at = self.at;
        let Some(state) = self.state() else {
            return true;
        };
        let upper = state.upper(at).ok();
        self.made = upper.and_then(|upper| charged_box(upper).ok());
        self.made.is_some()
    }

    fn split(&mut self) -> Result<(), u32> {
        self.upper = Some(self.upstream.split()?);
        Ok(())
    }

    fn after(&mut self, _: bool) {
        self.flash.after(self.upper);
    }

    fn truncate(&mut self) {
        let at = self.at;
        if let Some(state) = self.state() {
            state.truncate(at);
        }
    }

    fn keep(&mut self) {
        if let (Some(block), Some(made)) = (&mut self.locked, self.made.take()) {
            block.keep(made);
        }
    }
}
