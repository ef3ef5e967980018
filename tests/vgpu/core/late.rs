// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What takes effect late, in the adversarial order: stores, invalidates, entries of the fault buffer and of notifications.
//!
//! Hardware promises when each of them is over by the latest. Until then a seed decides. What is
//! still on its way when nobody can go on arrives after [`LINGER_NS`], so that the CPU may look
//! before.
//!
//! A store of a copy engine or of an SM goes through three stages, and is then in memory:
//!
//! | stage | of a copy engine, with | of an SM, with | who sees the store |
//! |---|---|---|---|
//! | issued | | | nobody; of an SM, its own kernel |
//! | complete | a wait for idle, or the next launch that is not pipelined | an acknowledged invalidate of its page | its own channel or kernel as well |
//! | on the GPU | a membar or flush for the GPU, if not of vidmem | the same; of Blackwell, an acknowledged invalidate of its page | all of the GPU |
//!
//! A membar or flush for the system, and for stores to vidmem also one for the GPU, brings what
//! it covers to memory. A membar covers what is complete: of its own channel, and of all SMs. A
//! flush covers all of its channel. The end of a kernel, and of each phase, covers its stores.

use super::channel::ChannelId;
use super::gpu::Hw;
use super::machine::Loc;
use super::machine::Machine;
use super::machine::Space;
use super::order::mix;
use super::order::Order;
use super::space::SpaceId;
use super::tlb::Invalidate;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

/// Bytes of a store that are held back; what is before them is written at once.
pub(super) const LINE: usize = 64;
/// Most stores, and most invalidates, that are on their way.
const STORES: usize = 32;
const INVALIDATES: usize = 16;
/// How long all stands still until what is on its way arrives.
const LINGER_NS: u64 = 200_000;

/// Who makes a store, or looks at memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A channel of UVM's.
    Channel(ChannelId),
    /// The kernels of a user's channel, by its instance pointer.
    User(u64),
}

/// How far a store is; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    Issued,
    Complete,
    Gpu,
}

/// A store that is not in memory yet.
#[derive(Clone, Copy, Debug)]
struct Store {
    who: Who,
    /// Of a kernel's: the address that it was made through.
    through: Option<(SpaceId, u64)>,
    /// Of a kernel's: what somebody read before, and an atomic added to.
    is_sum: bool,
    to: Loc,
    data: [u8; LINE],
    /// Bytes of `data` that count.
    bytes: usize,
    stage: Stage,
}

impl Store {
    fn overlaps(&self, at: Loc, bytes: u64) -> bool {
        let (a, b) = (self.to.at, at.at);
        self.to.space == at.space && a < b.saturating_add(bytes) && b < a + self.bytes as u64
    }

    fn is_seen_by(&self, who: Who) -> bool {
        let own = who == self.who;
        self.stage == Stage::Gpu
            || own && (self.stage == Stage::Complete || matches!(who, Who::User(_)))
    }
}

/// All that is on its way.
#[derive(Debug)]
pub(super) struct Late {
    seed: u64,
    decisions: u64,
    /// The oldest first, as are the invalidates. Neither ever grows.
    stores: TryVec<Store>,
    invalidates: TryVec<Invalidate>,
    /// When something was done last.
    last_ns: u64,
}

impl Late {
    /// Nothing on its way yet; `None` in the kind order, where nothing is late.
    pub(super) fn new(order: Order, index: u32) -> Result<Option<Self>, OutOfMemory> {
        let Order::Adversarial { seed } = order else {
            return Ok(None);
        };
        Ok(Some(Self {
            seed: mix(mix(seed) ^ u64::from(index) ^ (1 << 60)),
            decisions: 0,
            stores: TryVec::with_capacity(STORES)?,
            invalidates: TryVec::with_capacity(INVALIDATES)?,
            last_ns: 0,
        }))
    }

    #[cold]
    #[inline(never)]
    fn bytes_held(&mut self, bytes: u64) -> u64 {
        match self.decide() & 1 {
            0 => 0,
            _ => bytes.min(LINE as u64),
        }
    }

    /// Whether an entry that UVM reads comes later than PUT says.
    #[cold]
    #[inline(never)]
    pub(super) fn is_entry_late(&mut self) -> bool {
        self.decide() & 1 == 0
    }

    fn decide(&mut self) -> u64 {
        self.decisions += 1;
        mix(self.seed ^ self.decisions)
    }
}

/// Takes element `i` out, and leaves the others in their order.
fn remove<T: Copy>(v: &mut TryVec<T>, i: usize) -> Option<T> {
    v.get_mut(i..)
        .filter(|rest| !rest.is_empty())?
        .rotate_left(1);
    v.pop()
}

// Stores.
impl<M: Machine> Hw<M> {
    /// How many bytes at the end of a store of `bytes` bytes are to be held back: often none.
    #[inline(always)]
    pub(super) fn bytes_held(&mut self, bytes: u64) -> u64 {
        match &mut self.late {
            None => 0,
            Some(late) => late.bytes_held(bytes),
        }
    }

    /// Holds a store of at most [`LINE`] bytes back: what `data` writes. A kernel's was made `through` an address, and may be
    /// a sum.
    #[cold]
    #[inline(never)]
    pub(super) fn hold(
        &mut self,
        who: Who,
        through: Option<(SpaceId, u64, bool)>,
        to: Loc,
        bytes: u64,
        data: impl FnOnce(&M, &mut [u8]),
    ) {
        let Some(late) = &mut self.late else {
            return;
        };
        let n = late.decide() as usize;
        if let Some(full) = n.checked_rem(late.stores.len().max(1)) {
            if late.stores.len() == STORES {
                self.land(full);
            }
        }
        let bytes = (bytes as usize).min(LINE);
        let mut store = Store {
            who,
            through: through.map(|(space, va, _)| (space, va)),
            is_sum: through.is_some_and(|(.., is_sum)| is_sum),
            to,
            data: [0; LINE],
            bytes,
            stage: Stage::Issued,
        };
        data(&self.m, &mut store.data[..bytes]);
        if let Some(late) = &mut self.late {
            // There is room: see above.
            let _ = late.stores.push(store);
        }
    }

    /// Before `who` accesses `bytes` bytes: lands the late stores that it must see, and those that its
    /// write must not be overtaken by.
    #[inline(always)]
    pub(super) fn settle(&mut self, who: Who, at: Loc, bytes: u64) {
        if self.late.as_ref().is_some_and(|l| !l.stores.is_empty()) {
            self.settle_now(who, at, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_now(&mut self, who: Who, at: Loc, bytes: u64) {
        self.land_where(|s| s.overlaps(at, bytes) && s.is_seen_by(who));
    }

    /// Before an SM reads what it adds to: lands the late sums of this GPU's there, whoever's they are, as its atomics are atomic to each
    /// other.
    #[cold]
    #[inline(never)]
    pub(super) fn settle_sums(&mut self, at: Loc, bytes: u64) {
        self.land_where(|s| s.is_sum && s.overlaps(at, bytes));
    }

    /// All stores of a kernel are over, or its channel's have to be.
    pub(super) fn settle_user(&mut self, instance: u64) {
        if self.late.is_some() {
            self.settle_user_now(instance);
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_user_now(&mut self, instance: u64) {
        self.land_where(|s| s.who == Who::User(instance));
    }

    /// A channel is idle: its launches are over.
    pub(super) fn complete(&mut self, id: ChannelId) {
        if let Some(late) = &mut self.late {
            let own = late.stores.iter_mut().filter(|s| s.who == Who::Channel(id));
            own.filter(|s| s.stage == Stage::Issued)
                .for_each(|s| s.stage = Stage::Complete);
        }
    }

    /// A membar of a channel's host.
    pub(super) fn membar(&mut self, id: ChannelId, sys: bool) {
        self.make_seen(sys, |s| {
            let is_ours = matches!(s.who, Who::User(_)) || s.who == Who::Channel(id);
            is_ours && s.stage >= Stage::Complete
        });
    }

    /// A flush of a channel's copy engine.
    pub(super) fn flush(&mut self, id: ChannelId, sys: bool) {
        self.make_seen(sys, |s| s.who == Who::Channel(id));
    }

    fn make_seen(&mut self, sys: bool, covers: impl Fn(&Store) -> bool) {
        let Some(late) = &mut self.late else {
            return;
        };
        for s in late.stores.iter_mut().filter(|s| covers(s)) {
            s.stage = Stage::Gpu;
        }
        self.land_where(|s| covers(s) && (sys || s.to.space == Space::Vidmem));
    }

    /// Writes the stores of which `test` is true to memory, the oldest first.
    fn land_where(&mut self, test: impl Fn(&Store) -> bool) {
        let next = |late: &Late| late.stores.iter().position(&test);
        while let Some(i) = self.late.as_ref().and_then(next) {
            self.land(i);
        }
    }

    /// Writes store `i` to memory.
    fn land(&mut self, i: usize) {
        let Some(s) = self.late.as_mut().and_then(|l| remove(&mut l.stores, i)) else {
            return;
        };
        self.mark_dirty(s.to, s.bytes as u64);
        let pattern = &s.data[..s.bytes];
        if self.m.fill(s.to, s.bytes as u64, pattern, 0).is_err() {
            self.m.report(format_args!(
                "vgpu{}: a store that nobody waited for, to {}, where there is no memory any more",
                self.index, s.to
            ));
        }
    }
}

// Invalidates.
impl<M: Machine> Hw<M> {
    /// Executes an invalidate, which without an acknowledgement may take effect later.
    pub(super) fn invalidate_in_time(&mut self, what: &Invalidate, is_acknowledged: bool) {
        let Some(late) = &mut self.late else {
            return self.invalidate(what);
        };
        // The acknowledgement is the GPCs': the hub has none to wait for.
        if !what.gpcs {
            return self.invalidate(what);
        }
        if is_acknowledged {
            self.finish_invalidates();
            self.invalidate(what);
            self.complete_through(what);
            return;
        }
        let hub = Invalidate {
            gpcs: false,
            ..*what
        };
        let first = if late.invalidates.len() == INVALIDATES {
            remove(&mut late.invalidates, 0)
        } else {
            None
        };
        if self.is_dropped() {
            return;
        }
        self.apply(&hub);
        if let Some(first) = first {
            self.apply(&first);
        }
        if let Some(late) = &mut self.late {
            // There is room: see above.
            let _ = late.invalidates.push(*what);
        }
    }

    /// What came before a replay, a cancel or an acknowledged invalidate is over with it.
    pub(super) fn finish_invalidates(&mut self) {
        while let Some(what) = self
            .late
            .as_mut()
            .and_then(|l| remove(&mut l.invalidates, 0))
        {
            self.apply(&what);
        }
    }

    /// The accesses by what is acknowledged to be forgotten have been made.
    fn complete_through(&mut self, what: &Invalidate) {
        let Some(late) = &mut self.late else {
            return;
        };
        let (first, last) = what.bytes();
        for s in late.stores.iter_mut().filter(|s| s.stage == Stage::Issued) {
            let Some((id, va)) = s.through else {
                continue;
            };
            let named =
                |space: &super::space::AddressSpace| space.id == id && space.pdb == what.pdb;
            if (first..=last).contains(&va) && (what.pdb.is_none() || self.spaces.iter().any(named))
            {
                s.stage = match self.chip.acks_are_membars {
                    true => Stage::Gpu,
                    false => Stage::Complete,
                };
            }
        }
        if self.chip.acks_are_membars {
            let is_over = |s: &Store| s.stage == Stage::Gpu && s.to.space == Space::Vidmem;
            self.land_where(is_over);
        }
    }
}

// Time.
impl<M: Machine> Hw<M> {
    /// Whether an entry of the fault buffer comes later than PUT says.
    pub(super) fn is_entry_late(&mut self) -> bool {
        self.late.as_mut().is_some_and(Late::is_entry_late)
    }

    /// After a step: lets some of what is on its way arrive.
    pub(super) fn arrive(&mut self) {
        let faults = self.faults.entries.on_their_way();
        let entries = faults + self.counters.entries.on_their_way();
        let Some(late) = &mut self.late else {
            return;
        };
        if entries == 0 && late.stores.is_empty() && late.invalidates.is_empty() {
            return;
        }
        let n = late.decide();
        let pick = (n >> 16) as usize;
        let store = pick.checked_rem(late.stores.len());
        if let Some(i) = store.filter(|_| n % 8 == 0) {
            self.land(i);
        }
        if (n >> 3) % 8 == 0 {
            let late = self.late.as_mut();
            if let Some(what) = late.and_then(|l| remove(&mut l.invalidates, 0)) {
                self.apply(&what);
            }
        }
        if let Some(i) = pick.checked_rem(entries).filter(|_| (n >> 6) % 4 == 0) {
            match i.checked_sub(faults) {
                None => self.faults.entries.arrive(&self.m, i),
                Some(i) => self.counters.entries.arrive(&self.m, i),
            }
        }
    }

    /// At the end of a turn, in which something was done or not.
    pub(super) fn linger(&mut self, progress: bool, now: u64) {
        let Some(late) = &mut self.late else {
            return;
        };
        if progress {
            late.last_ns = now;
        } else if now.saturating_sub(late.last_ns) >= LINGER_NS {
            self.all_arrive();
        }
    }

    /// Lets all that is on its way arrive.
    pub(super) fn all_arrive(&mut self) {
        self.land_where(|_| true);
        self.finish_invalidates();
        self.faults.entries.all_arrive(&self.m);
        self.counters.entries.all_arrive(&self.m);
    }
}

#[cfg(test)]
mod tests;
