// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Faults on pages that cannot be migrated, however often that is tried (F-again). The GPU can access such pages in
//! place.
//!
//! Linux migrates no page of ordinary memory that somebody holds. NVIDIA's HMM code then asks for another try of the
//! service ([`Tries`]). If it could migrate one page of the region, it reports that it has serviced all faults there,
//! and the fault on the held page comes back with each replay, for as long as the page is held ([`Returns`]).

/// How often the service of one fault may release the locks and be tried again before it is tried in place, and then
/// before the faults of its VA space are left for the replay (F-again). Interference by other threads is over after a
/// try or two; a held page may never be migrated.
pub(super) const IN_PLACE_AFTER: u32 = 8;
pub(super) const LEFT_AFTER: u32 = 16;

/// The fault whose service asked last to be tried again, and how often it did so.
#[derive(Default)]
pub(super) struct Tries {
    at: usize,
    times: u32,
}

impl Tries {
    /// Notes that the service of the fault at place `at` asks for another try. Returns how often it has.
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

/// How many VA spaces are told apart, by four bits of a hash.
const SLOTS: usize = 16;

/// The first fault of a VA space in its last batch.
#[derive(Clone, Copy, Default)]
struct Slot {
    space: u64,
    address: u64,
    /// How many batches of the VA space in a row before that began with the same fault.
    times: u32,
}

/// The faults that the last batches began with, by VA space. A VA space that shares its slot with another replaces
/// it.
#[derive(Default)]
pub(super) struct Returns {
    slots: [Slot; SLOTS],
}

impl Returns {
    /// Notes that a batch's faults of `space` begin at `address`. Returns whether the first is to be serviced in
    /// place.
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
        // Every second time the page is migrated if that is possible by now, which is better.
        slot.times >= TIMES && slot.times % 2 == 0
    }

    /// Forgets all faults, after pages were left alone because they thrash: their faults come back on purpose.
    #[cold]
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
