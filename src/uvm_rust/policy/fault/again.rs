// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Faults on pages that are not migrated, however often that is tried (F-again). In place the GPU can access them.
//!
//! Linux migrates no page of ordinary memory that somebody holds. NVIDIA's HMM code says then that the service is to be
//! tried again ([`Tries`]). If it could migrate one page of the region, it says that it has serviced all faults there, and
//! that of the held page comes back with each replay, for as long as the page is held ([`Returns`]).

/// How often the service of one fault may let the locks go and be tried again, before it is tried in place, and before
/// the faults of its VA space are left for the replay (F-again). What others do at the same time is over after a try or
/// two; a page that somebody holds may never be migrated.
pub(super) const IN_PLACE_AFTER: u32 = 8;
pub(super) const LEFT_AFTER: u32 = 16;

/// The fault whose service asked last to be tried again, and how often it did so.
#[derive(Default)]
pub(super) struct Tries {
    at: usize,
    times: u32,
}

impl Tries {
    /// The service of the fault at place `at` asks once more. Returns how often it has.
    pub(super) fn again(&mut self, at: usize) -> u32 {
        if self.at != at {
            *self = Self { at, times: 0 };
        }
        self.times += 1;
        self.times
    }
}

/// After how many services in a row a fault is tried in place, every second time. Two processors that use a page in turn
/// are told apart from this by the driver's thrashing detection, which acts after three.
const TIMES: u32 = 8;

/// VA spaces that are told apart, as a power of two: four bits of a hash.
const SLOTS: usize = 16;

/// The first fault of a VA space in its last batch.
#[derive(Clone, Copy, Default)]
struct Slot {
    space: u64,
    address: u64,
    /// In how many batches of the VA space before that it was the first one, without another in between.
    times: u32,
}

/// The faults that the last batches began with, by VA space. One that shares its place with another is forgotten by
/// that.
#[derive(Default)]
pub(super) struct Returns {
    slots: [Slot; SLOTS],
}

impl Returns {
    /// A batch's faults of `space` begin at `address`. Returns whether the first is to be serviced in place.
    #[inline(always)]
    pub(super) fn comes(&mut self, space: u64, address: u64) -> bool {
        let place = space.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let Some(slot) = self.slots.get_mut(place as usize) else {
            return false;
        };
        if (slot.space, slot.address) != (space, address) {
            *slot = Slot {
                space,
                address,
                times: 0,
            };
            return false;
        }
        slot.times = slot.times.saturating_add(1);
        // What could not be migrated may be by now, and is then better off.
        slot.times >= TIMES && slot.times % 2 == 0
    }

    /// Pages are left alone on purpose, as they thrash: their faults come back all the same.
    #[cold]
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
