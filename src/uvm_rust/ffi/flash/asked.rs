// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Readers for GPU faults that were put off, for calls and for prefetches: the machine of `policy/flash/asked.rs`.

use super::block;
use super::chosen::Chosen;
use super::dev::{Dev, Set};
use super::fetch::{fetch_for, For, Ready};
use super::room::Room;
use super::tier::{asking, current, device, fetched, kick_workers, lacks_room, OwnerHandle};
use super::{bindings, FETCHERS, PREFETCHERS, READERS};
use crate::ffi::seam::PmLock;
use crate::ffi::work::{Charging, Kind, Work, WorkOf};
use crate::policy::flash::asked::{serve, Machine};
use crate::policy::flash::fetch::Fetched;
use crate::policy::flash::pool::Who;
use crate::policy::flash::room::{needs_host, To};
use crate::policy::flash::tier::reads_for;
use crate::policy::flash::wants::Asks;
use bindings::{mm_struct, uvm_seam_space};
use core::ptr::null_mut;
use kernel::prelude::*;

/// A reader of what was asked for of a tenant's blocks. All tenants' readers share work queues.
pub(super) struct Fetcher {
    /// The tenant and the reader's number; `None` before [`Fetcher::begin`].
    of: Option<(OwnerHandle, u32)>,
    work: Option<Work>,
}

impl Fetcher {
    pub(super) const fn none() -> Self {
        Self {
            of: None,
            work: None,
        }
    }

    /// Makes this fetcher `number` of `owner`.
    ///
    /// # Safety
    ///
    /// The fetcher is a part of the owner, which stops it before it is freed. Nobody writes to it from now on.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no memory for the work.
    pub(super) unsafe fn begin(&mut self, owner: OwnerHandle, number: u32) -> Result {
        self.of = Some((owner, number));
        let of = (self as *mut Self).cast::<WorkOf>();
        // SAFETY: by this function's contract it is there, and nobody writes to it, as long as the work.
        self.work = Some(unsafe { Work::new(Kind::Fetch, run, of) }?);
        Ok(())
    }

    pub(super) fn wake(&self) {
        if let (Some(work), Some((_, number))) = (&self.work, self.of) {
            work.queue(match reads_for(number) {
                Asks::Fault => &FETCHERS,
                Asks::Call => &READERS,
                Asks::Prefetch => &PREFETCHERS,
            });
        }
    }

    /// Stops the fetcher, which nobody wakes any more.
    pub(super) fn stop(&self) {
        if let Some(work) = &self.work {
            work.stop();
        }
    }
}

/// A turn of a fetcher.
///
/// # Safety
///
/// `of` is the [`Fetcher`] for which [`Fetcher::begin`] made this work.
unsafe extern "C" fn run(of: *mut WorkOf) {
    // SAFETY: `begin` gave it, and whoever has it stops the work first.
    let fetcher = unsafe { &*of.cast::<Fetcher>() };
    let Some((owner, number)) = fetcher.of else {
        return;
    };
    // SAFETY: the owner stops this before it goes.
    let block = unsafe { asking(owner, number) };
    if !block.is_null() {
        let mut asked = Asked {
            owner,
            at: Chosen::none(),
            mm: null_mut(),
            charging: None,
            reads_for: reads_for(number),
            whom: Asks::Prefetch,
            set: None,
            ready: None,
            pm: None,
        };
        // SAFETY: it came with a reference, which is given back when all is done.
        unsafe {
            asked.at.choose(block);
            serve(&mut asked);
            asked.at.release();
        }
    }
    // SAFETY: as above.
    if unsafe { fetched(owner, number) } {
        fetcher.wake();
    }
}

/// A va_block of which pages were asked for.
///
/// Invariant: the owner, which is that of the block's VA space, exists; `mm` points to what was retained.
struct Asked {
    owner: OwnerHandle,
    at: Chosen,
    /// The VA space's `mm_struct` between `open` and `close`; null if it has none.
    mm: *mut mm_struct,
    charging: Option<Charging>,
    reads_for: Asks,
    /// What the last fetch was for.
    whom: Asks,
    /// The set of buffers that a reader for faults has waited for, until it begins to read.
    set: Option<Set>,
    /// The turn and the set of buffers that a reader for a call or a prefetch has waited for.
    ready: Option<Ready>,
    /// The lock of power management, between `enter` and `leave`.
    pm: Option<PmLock>,
}

impl Asked {
    fn space(&self) -> *mut uvm_seam_space {
        self.at.space()
    }
}

// In all blocks below locks are held as the policy documents it (A-lock).
impl Machine for Asked {
    fn enter(&mut self) -> bool {
        self.pm = PmLock::try_read();
        self.pm.is_some()
    }

    fn leave(&mut self) {
        self.pm = None;
    }

    fn lock(&mut self) {
        self.at.lock();
    }

    fn unlock(&mut self) {
        self.at.unlock();
    }

    fn is_known(&mut self) -> bool {
        self.at.alive().is_some()
    }

    fn try_space(&mut self) -> bool {
        self.at.try_space()
    }

    fn leave_space(&mut self) {
        self.at.leave_space();
    }

    fn lacks_room(&mut self) -> bool {
        let Some(block) = self.at.alive() else {
            return false;
        };
        // SAFETY: the block is locked and known, and its VA space locked; the tier is there.
        unsafe {
            let (asked, whom) = block::asked(self.at.known(), self.reads_for);
            whom.is_some_and(|whom| lacks_room(self.owner, whom))
                && Room::of(block, null_mut())
                    .is_some_and(|mut room| needs_host(&mut room, To::Host, &asked))
        }
    }

    fn kick(&mut self) {
        // SAFETY: there is a tier.
        unsafe { kick_workers(current()) };
    }

    fn open(&mut self) -> bool {
        // SAFETY: the VA space is locked, until `leave_space`; host memory is charged as upstream does in a
        // fault: to that of the process, if it is one's, which is kept until `close`.
        unsafe {
            self.mm = bindings::uvm_va_space_mm_retain(self.space().cast());
            let opened = self.at.open_for(self.mm);
            if !opened {
                self.let_mm_go();
            }
            // The tenant pays for the block's state.
            self.charging = opened.then(|| Charging::to(self.owner.group()));
            opened
        }
    }

    fn close(&mut self) {
        self.charging = None;
        self.at.close();
        // SAFETY: opened, and the context is gone.
        unsafe { self.let_mm_go() };
    }

    fn fetch(&mut self) -> Option<Fetched> {
        let (block, context) = self.at.opened()?;
        // SAFETY: the block is locked and known.
        let (asked, whom) = unsafe { block::asked(self.at.known(), self.reads_for) };
        let (set, ready) = (self.set.take(), self.ready.take());
        let Some(whom) = whom else {
            return Some(Fetched::All);
        };
        self.whom = whom;
        let whom = match whom {
            Asks::Fault => For::Fetcher(set),
            Asks::Call | Asks::Prefetch => For::Reader(ready),
        };
        // SAFETY: as above; its VA space is locked, and the context is open.
        unsafe { fetch_for(block, context, &asked, whom) }.ok()
    }

    fn tried(&mut self, failed: bool) {
        let Some(block) = self.at.alive() else {
            return;
        };
        // SAFETY: the block is locked, and alive and known.
        unsafe {
            block::tried(self.at.known(), self.reads_for, failed);
            block::read_ended(block);
        }
    }

    fn take_turn(&mut self) {
        // SAFETY: there is a tier as long as there is an owner.
        let dev = unsafe { device(current()) };
        if self.whom == Asks::Fault {
            // A reader for faults stands in line with other faults, which would otherwise take each set that comes
            // back.
            self.set = dev.map(|dev| Set::take(&dev, Who::Fault));
            return;
        }
        // The thread that ends the tenant waits for this one, with the lock of a VA space held.
        self.ready = dev.and_then(|dev| {
            let turn = Dev::begin_unless(&dev, self.whom.cause(), || self.owner.is_ending())?;
            let set = Set::take_unless(&dev, Who::Others, || self.owner.is_ending())?;
            Some(Ready { set, turn })
        });
    }
}

impl Asked {
    /// # Safety
    ///
    /// Nothing uses it any more, and the VA space is locked.
    unsafe fn let_mm_go(&mut self) {
        if !core::mem::replace(&mut self.mm, null_mut()).is_null() {
            // SAFETY: by this function's contract; `open` retained it.
            unsafe { bindings::uvm_va_space_mm_release(self.space().cast()) };
        }
    }
}
