// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A discard of an address range: `policy/discard/walk.rs` on upstream's VA space.

use super::{ended, status, Counts};
use crate::ffi::block::{Locked, LockedBlock, Tracker, Walk};
use crate::ffi::seam;
use crate::ffi::status::Status;
use crate::ffi::time;
use crate::ffi::vaspace::MmLock;
use crate::mem::{charged_box, OutOfMemory};
use crate::policy::discard::{
    self as policy, BlockState, Dropped, Facts, Held, Kind, Machine, Memory, Mode, Request, Span,
};
use crate::policy::evict::Queue;
use crate::policy::mask::PageMask;
use kernel::prelude::*;

/// Discards one range, adding what became of its blocks to `counts`. Returns NVIDIA's status
/// code.
pub(crate) fn range(
    mm: MmLock<'_>,
    tracker: Tracker<'_>,
    (base, length): (u64, u64),
    eager: bool,
    counts: &mut Counts,
) -> u32 {
    let request = Request {
        base,
        length,
        mode: if eager { Mode::Eager } else { Mode::Lazy },
        granule_shift: policy::granule_shift(seam::discard_granule()),
    };
    let mut call = DiscardCall {
        mm: Some(mm),
        tracker: Some(tracker),
        walk: None,
    };
    let mut met = policy::Counts::default();
    let result = policy::discard(&mut call, &request, &mut met);
    ended(result, &met, counts)
}

/// A VA space for the length of one discard of a range.
struct DiscardCall<'a> {
    /// The lock of the process' memory, until `enter`.
    mm: Option<MmLock<'a>>,
    /// The GPU work of the discard; `None` after [`Machine::wait`].
    tracker: Option<Tracker<'a>>,
    /// The VA space, between `enter` and `leave`.
    walk: Option<Walk<'a>>,
}

impl<'a> DiscardCall<'a> {
    /// Reports a breach of D-lock, unless the condition `holds`.
    fn check(&mut self, holds: bool) {
        if !holds {
            self.broken("D-lock");
        }
    }

    /// The VA space; it must have been entered.
    fn walk(&mut self) -> Option<&mut Walk<'a>> {
        self.check(self.walk.is_some());
        self.walk.as_mut()
    }

    /// Calls `then` with the block that is locked, and what goes with it.
    fn with_locked<R>(&mut self, then: impl FnOnce(Locked<'_>) -> R) -> Option<R> {
        self.check(self.walk.as_ref().is_some_and(Walk::is_locked));
        self.walk.as_mut()?.with_locked(then)
    }

    /// Calls `then` with the block that is locked.
    fn with_block<R>(&mut self, then: impl FnOnce(&mut LockedBlock<'_>) -> R) -> Option<R> {
        self.with_locked(|locked| then(locked.block))
    }
}

impl Machine for DiscardCall<'_> {
    type Error = Status;

    const CHECKS: bool = cfg!(uvm_checks);

    fn broken(&mut self, invariant: &'static str) {
        pr_err!("discard: {} does not hold\n", invariant);
    }

    fn enter(&mut self) {
        let mm = self.mm.take();
        self.check(mm.is_some());
        self.walk = mm.map(|mm| Walk::new(mm.lock_space()));
    }

    fn leave(&mut self) {
        let is_closed = self.walk.as_ref().is_some_and(|walk| !walk.is_open());
        self.check(is_closed);
        self.walk = None;
    }

    fn has_non_faultable(&mut self) -> bool {
        self.walk()
            .is_some_and(|walk| walk.space().has_non_faultable())
    }

    fn kind(&mut self, span: Span) -> Kind {
        self.walk()
            .map_or(Kind::Unknown, |walk| walk.space().kind(span))
    }

    fn open(&mut self) -> Result<(), Status> {
        if self.walk().is_some_and(|walk| !walk.open()) {
            return Status::check(status::NO_MEMORY);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.check(!self.walk.as_ref().is_some_and(Walk::is_locked));
        if let Some(walk) = self.walk() {
            walk.close();
        }
    }

    fn wait(&mut self) -> Result<(), Status> {
        let is_closed = self.walk.as_ref().is_some_and(|walk| !walk.is_open());
        self.check(is_closed);
        match (self.tracker.take(), &self.walk) {
            (Some(tracker), Some(walk)) => tracker.wait(walk.space()),
            _ => Ok(()),
        }
    }

    fn range(&mut self, at: u64, _: u64) -> Option<Span> {
        let range = self.walk()?.choose_range(at, at)?;
        Some(range.span())
    }

    fn rest(&mut self) {
        time::rest();
    }

    fn dying(&mut self) -> bool {
        time::rest()
    }

    fn block(&mut self, at: u64) -> Option<Span> {
        Some(self.walk()?.choose_block(at)?.span())
    }

    fn may_migrate(&mut self, span: Span) -> bool {
        self.walk()
            .is_some_and(|walk| walk.space().may_migrate(span))
    }

    fn lock(&mut self) {
        let is_new = self.walk().is_some_and(Walk::lock);
        self.check(is_new);
    }

    fn unlock(&mut self) {
        self.check(self.walk.as_ref().is_some_and(Walk::is_locked));
        if let Some(walk) = &mut self.walk {
            walk.unlock();
        }
    }

    fn facts(&mut self) -> Facts {
        self.with_block(|block| block.facts()).unwrap_or(Facts {
            resident: PageMask::EMPTY,
            mapped_2m: false,
        })
    }

    fn pinned(&mut self, pages: &PageMask) -> PageMask {
        self.with_block(|block| block.pinned(pages))
            .unwrap_or(PageMask::EMPTY)
    }

    fn state(&mut self) -> Option<&mut BlockState> {
        self.check(self.walk.as_ref().is_some_and(Walk::is_locked));
        self.walk.as_mut()?.state()
    }

    fn keep(&mut self, state: BlockState) -> Result<(), OutOfMemory> {
        if self.state().is_some() {
            self.broken("D-order");
        }
        let state = charged_box(state)?;
        self.with_block(|block| block.keep(state));
        Ok(())
    }

    fn held(&mut self, from: Memory) -> Option<Held> {
        self.with_block(|block| block.held(from))?
    }

    fn drop_pages(&mut self, pages: &PageMask) -> Result<Dropped, Status> {
        let dropped = self.with_locked(|Locked { block, context, .. }| {
            context.map(|context| block.drop_pages(context, pages, pages))
        });
        // The block is locked, with a context. Pages that are not dropped must not be recorded as dropped.
        match dropped.flatten().unwrap_or(status::INVALID_OPERATION) {
            status::AGAIN => Ok(Dropped::Again),
            other => Status::check(other).map(|()| Dropped::All),
        }
    }

    fn forget_thrashing(&mut self, pages: &PageMask) {
        self.with_block(|block| block.forget_thrashing(pages));
    }

    fn forget_stored(&mut self, pages: &PageMask) {
        self.with_block(|block| block.forget_stored(pages));
    }

    fn requeue(&mut self, memory: Memory, queue: Queue) {
        self.with_block(|block| block.requeue(memory, queue));
    }

    fn note_work(&mut self) -> Result<(), Status> {
        let (Some(tracker), Some(walk)) = (&mut self.tracker, &mut self.walk) else {
            return Ok(());
        };
        let noted = walk.with_locked(|locked| tracker.add(locked.block));
        noted.unwrap_or(Ok(()))
    }
}
