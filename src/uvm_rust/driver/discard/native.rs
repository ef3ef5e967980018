// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A discard of an address range where upstream discards by itself: `policy/discard/ranges.rs` on its VA space.

use super::{ended, status, Counts};
use crate::ffi::native::Opened;
use crate::ffi::status::Status;
use crate::ffi::time;
use crate::ffi::vaspace::{LockedVaSpace, MmLock};
use crate::policy::discard::ranges::{discard as ranges, Discarded, Machine};
use crate::policy::discard::{self as policy, Kind, Span};

/// Discards a range. Returns an `NV_STATUS`; the blocks are added to `counts`.
pub(crate) fn discard(
    mm: MmLock<'_>,
    base: u64,
    length: u64,
    eager: bool,
    counts: &mut Counts,
) -> u32 {
    let mut call = Call {
        eager,
        at: At::Out(Some(mm)),
    };
    let mut met = policy::Counts::default();
    let result = ranges(&mut call, base, length, &mut met);
    ended(result, &met, counts)
}

/// A discard by upstream that is under way, from one call of the ioctl.
struct Call<'a> {
    eager: bool,
    at: At<'a>,
}

/// How far it has come.
enum At<'a> {
    /// With the lock of the process' memory before it is entered.
    Out(Option<MmLock<'a>>),
    Entered(LockedVaSpace<'a>),
    Open(Opened<'a>),
}

impl<'a> Call<'a> {
    fn entered(&self) -> Option<&LockedVaSpace<'a>> {
        match &self.at {
            At::Entered(space) => Some(space),
            _ => None,
        }
    }
}

impl Machine for Call<'_> {
    type Error = Status;

    fn enter(&mut self) {
        if let At::Out(mm) = &mut self.at {
            if let Some(mm) = mm.take() {
                self.at = At::Entered(mm.lock_space());
            }
        }
    }

    fn leave(&mut self) {
        self.at = At::Out(None);
    }

    fn has_non_faultable(&mut self) -> bool {
        self.entered().is_some_and(LockedVaSpace::has_non_faultable)
    }

    fn kind(&mut self, span: Span) -> Kind {
        self.entered()
            .map_or(Kind::Unknown, |space| space.kind(span))
    }

    fn open(&mut self) -> Result<(), Status> {
        if let At::Entered(space) = core::mem::replace(&mut self.at, At::Out(None)) {
            self.at = match Opened::new(space) {
                Ok(opened) => At::Open(opened),
                Err(space) => {
                    self.at = At::Entered(space);
                    return Status::check(status::NO_MEMORY);
                }
            };
        }
        Ok(())
    }

    fn close(&mut self) {
        if let At::Open(opened) = core::mem::replace(&mut self.at, At::Out(None)) {
            self.at = At::Entered(opened.close());
        }
    }

    fn rest(&mut self) -> bool {
        time::rest()
    }

    fn discard(&mut self, at: u64, last: u64) -> Result<Discarded, Status> {
        let At::Open(opened) = &mut self.at else {
            return Err(Status::BROKEN);
        };
        let (result, last) = opened.discard(at, last, self.eager);
        let done = result != status::NOTHING_TO_DO;
        if done {
            Status::check(result)?;
        }
        Ok(Discarded { last, done })
    }
}
