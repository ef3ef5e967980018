// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Where a job stays between the thread that enqueues it and the one that runs it. A host
//! function of CUDA gets one word: a [`Tag`], which names a slot of a table and which of the
//! slot's jobs it is. So no memory is allocated while the first slots do; and a host function
//! that runs again, as a node of a graph does into which another thread's capture made it,
//! finds its job gone, and touches nobody else's.

use core::mem::MaybeUninit;

use crate::sync::{AtomicPtr, AtomicU64, Ordering, UnsafeCell};

/// Names a job: the slot in the lower bits, the generation above. Never the same twice in
/// 2^40 jobs of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u64);

/// Bits of a slot's number in a tag.
const SLOT_BITS: u32 = 24;
const GENERATIONS: u64 = (1 << (64 - SLOT_BITS)) - 1;

/// A place for a job.
pub(crate) struct Slot<T> {
    /// How many jobs it had in the upper bits, and one of [`FREE`], [`BUSY`] and [`FULL`].
    pub(crate) state: AtomicU64,
    /// Accessed only by the thread that has made the slot [`BUSY`].
    pub(crate) held: UnsafeCell<MaybeUninit<T>>,
}

/// The slot holds no job: `held` is not initialised.
const FREE: u64 = 0;
/// A thread writes `held`, or takes it out.
const BUSY: u64 = 1;
/// `held` has a job.
const FULL: u64 = 2;
const STATES: u64 = 3;

// SAFETY: `held` is accessed only by who has made the slot busy, and is handed over by acquire
// and release of `state`.
unsafe impl<T: Send> Sync for Slot<T> {}

/// Slots, and where there are more once these are full.
pub(crate) struct Table<T, const N: usize> {
    pub(crate) slots: [Slot<T>; N],
    /// Null or from `Box::into_raw`, and never freed once it is here.
    pub(crate) more: AtomicPtr<Table<T, N>>,
}

impl<T, const N: usize> Table<T, N> {
    /// Puts something where it stays until [`Table::take`]. `None`: there is no room left in
    /// a tag, after some millions at a time.
    pub(crate) fn put(&self, value: T) -> Option<Tag> {
        let mut value = MaybeUninit::new(value);
        let (mut table, mut first) = (self, 0);
        while first + N <= 1 << SLOT_BITS {
            for (i, slot) in table.slots.iter().enumerate() {
                let Some(generation) = slot.claim() else {
                    continue;
                };
                // SAFETY: initialised above, and moved out here alone: this returns.
                let value = unsafe { value.assume_init_read() };
                slot.fill(generation, value);
                let generation = (generation & GENERATIONS) << SLOT_BITS;
                return Some(Tag(generation | (first + i) as u64));
            }
            (table, first) = (table.next_or_new(), first + N);
        }
        // SAFETY: initialised above, and not moved out.
        unsafe { value.assume_init_drop() };
        None
    }

    /// Takes it out, and gives its place to others. `None`: it was taken before.
    pub(crate) fn take(&self, tag: Tag) -> Option<T> {
        let mut at = (tag.0 & ((1 << SLOT_BITS) - 1)) as usize;
        let mut table = self;
        while at >= N {
            (table, at) = (table.next()?, at - N);
        }
        table.slots[at].empty(tag.0 >> SLOT_BITS)
    }

    fn next(&self) -> Option<&Self> {
        // SAFETY: by the invariant of `more`; nobody has it mutably.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    fn next_or_new(&self) -> &Self {
        if let Some(next) = self.next() {
            return next;
        }
        let none = core::ptr::null_mut();
        let new = Box::into_raw(Box::new(Self {
            slots: core::array::from_fn(|_| Slot {
                state: AtomicU64::new(FREE),
                held: UnsafeCell::new(MaybeUninit::uninit()),
            }),
            more: AtomicPtr::new(none),
        }));
        let swapped = self
            .more
            .compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire);
        let kept = match swapped {
            Ok(_) => new,
            Err(others) => {
                // SAFETY: ours, and nobody has seen it. Its slots are empty.
                drop(unsafe { Box::from_raw(new) });
                others
            }
        };
        // SAFETY: by the invariant of `more`; nobody has it mutably.
        unsafe { &*kept }
    }
}

impl<T> Slot<T> {
    /// Makes a free slot busy, and gives its generation.
    fn claim(&self) -> Option<u64> {
        let now = self.state.load(Ordering::Relaxed);
        let claimed = now & STATES == FREE && self.change(now, now | BUSY);
        claimed.then_some(now / (STATES + 1))
    }

    /// Fills the slot, which this thread has made busy.
    fn fill(&self, generation: u64, value: T) {
        self.held.with_mut(|held| {
            // SAFETY: nobody else accesses it while the slot is busy.
            let held = unsafe { &mut *held };
            held.write(value);
        });
        let full = (generation * (STATES + 1)) | FULL;
        self.state.store(full, Ordering::Release);
    }

    /// What the slot has, if it is of this generation still.
    fn empty(&self, generation: u64) -> Option<T> {
        let now = self.state.load(Ordering::Relaxed);
        let whose = now / (STATES + 1);
        let same = now & STATES == FULL && whose & GENERATIONS == generation;
        if !same || !self.change(now, now ^ FULL ^ BUSY) {
            return None;
        }
        // SAFETY: it was full, and nobody else accesses it while the slot is busy; read once,
        // then given up.
        let value = self
            .held
            .with_mut(|held| unsafe { (*held).assume_init_read() });
        let next = whose.wrapping_add(1).wrapping_mul(STATES + 1);
        self.state.store(next | FREE, Ordering::Release);
        Some(value)
    }

    fn change(&self, from: u64, to: u64) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}
