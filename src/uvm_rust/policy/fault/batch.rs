// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A batch of faults: coalesced as they are read, then put in order.
//!
//! All memory is allocated when the batch is made. Reading takes one step per entry, and
//! merges nearly all duplicates, so that they are not sorted. Ordering takes O(n log n)
//! steps, and none if the faults came in order.
//!
//! The sort of `core` would need no memory, but stack: it calls itself, in frames of 1.7 KB,
//! up to 16 deep for 256 records whose pivots come out badly. A kernel's stack has 16 KB.
//! In what order faults come is the GPU program's choice, so ours does not call itself.

use super::Record;
use crate::mem::{OutOfMemory, TryVec};

/// The faults of one batch.
pub struct Batch {
    /// As long as the ring; the first `len` are in use.
    records: TryVec<Record>,
    /// Room for sorting, as long as `records`.
    spare: TryVec<Record>,
    /// For each entry read, the entry that stands for it: itself, or one that it
    /// was merged into, perhaps over several steps until [`Batch::settle`].
    into: TryVec<u32>,
    /// By a hash of the page, a place in `records` that may hold it; twice as long as
    /// the ring, or more. Never cleared: a place is only believed if the record there
    /// matches.
    seen: TryVec<u32>,
    len: usize,
    /// Entries read, coalesced ones included.
    entries: usize,
    /// Whether all faults so far are of one instance pointer and subcontext.
    single: bool,
    /// Whether each fault so far is behind the one before it in the order, for another
    /// page.
    rising: bool,
}

/// The records at the beginning of ordered `records` that are of the first one's VA space, not fatal, and at
/// addresses from `first` to `last`.
pub fn run_within(records: &[Record], first: u64, last: u64) -> &[Record] {
    let who = records.first().map(|record| record.who);
    let is_one = |record: &Record| {
        Some(record.who) == who && record.fatal == 0 && (first..=last).contains(&record.address)
    };
    let n = records.iter().take_while(|record| is_one(record)).count();
    records.get(..n).unwrap_or(&[])
}

impl Batch {
    /// Makes a batch for a ring of `ring` entries.
    pub fn new(ring: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            records: TryVec::filled(ring as usize, Record::default())?,
            spare: TryVec::filled(ring as usize, Record::default())?,
            into: TryVec::filled(ring as usize, 0)?,
            seen: TryVec::filled((ring as usize).next_power_of_two() * 2, 0)?,
            len: 0,
            entries: 0,
            single: true,
            rising: true,
        })
    }

    /// Forgets all faults, for the next batch.
    pub fn clear(&mut self) {
        self.len = 0;
        self.entries = 0;
        self.single = true;
        self.rising = true;
    }

    /// Entries read, coalesced ones included.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// The most entries that the batch can hold.
    pub fn capacity(&self) -> usize {
        self.records.len()
    }

    /// The faults: in order after [`Batch::order`].
    pub fn records(&self) -> &[Record] {
        self.records.get(..self.len).unwrap_or(&[])
    }

    /// For each entry read, the one that stands for it; after [`Batch::order`].
    pub fn representatives(&self) -> &[u32] {
        self.into.get(..self.entries).unwrap_or(&[])
    }

    /// Where the next entries go, before [`Batch::absorb`].
    pub fn room(&mut self) -> &mut [Record] {
        self.records.get_mut(self.len..).unwrap_or(&mut [])
    }

    /// Takes over the first `n` of [`Batch::room`], whose `entry` numbers go on
    /// from the last one; merges those of a fault already there if `coalesce`.
    ///
    /// A fault that is missed here, since two pages share a place, is found by
    /// [`Batch::order`].
    pub fn absorb(&mut self, n: usize, coalesce: bool) {
        let from = self.len;
        for at in from..from.saturating_add(n).min(self.records.len()) {
            // The batch, and behind it places of what was merged; and what is not in it yet.
            let (before, new) = self.records.split_at_mut(at);
            let Some(record) = new.first() else {
                return;
            };
            if let Some(into) = self.into.get_mut(self.entries) {
                *into = record.entry;
            }
            self.entries += 1;
            let hash = hash(record, self.seen.len());
            let Some(place) = self.seen.get_mut(hash) else {
                return;
            };
            if coalesce && record.fatal == 0 {
                let batch = before.get_mut(..self.len).unwrap_or(&mut []);
                match batch.get_mut(*place as usize) {
                    Some(to) if to.merges_with(record) => {
                        join(to, record, &mut self.into);
                        continue;
                    }
                    _ => {}
                }
            }
            if let Some(last) = self.len.checked_sub(1).and_then(|l| before.get(l)) {
                self.single &= last.who == record.who;
                self.rising &= (last.who, last.address) < (record.who, record.address);
            }
            *place = self.len as u32;
            // If nothing was merged yet, the record is in its place already.
            if let Some(free) = before.get_mut(self.len) {
                *free = *record;
            }
            self.len += 1;
        }
    }

    /// Puts the faults in the order of whose, address, falling access, and merges
    /// what is then side by side if `coalesce`.
    #[inline(always)]
    pub fn order(&mut self, coalesce: bool) {
        // A batch of one fault always is in order.
        let is_ordered = self.rising && self.len == self.entries;
        if !is_ordered {
            self.arrange(coalesce);
        }
    }

    fn arrange(&mut self, coalesce: bool) {
        if !self.rising {
            let records = self.records.get_mut(..self.len).unwrap_or(&mut []);
            if self.single {
                sort(records, &mut self.spare, Record::place);
            } else {
                sort(records, &mut self.spare, |r| (r.who, r.place()));
            }
            if coalesce {
                self.merge_neighbours();
            }
        }
        if self.len != self.entries {
            self.settle();
        }
    }

    fn merge_neighbours(&mut self) {
        let mut kept = 0;
        for at in 1..self.len {
            let Some(record) = self.records.get(at).copied() else {
                return;
            };
            match self.records.get_mut(kept) {
                Some(to) if to.merges_with(&record) => join(to, &record, &mut self.into),
                _ => {
                    kept += 1;
                    if kept != at {
                        if let Some(slot) = self.records.get_mut(kept) {
                            *slot = record;
                        }
                    }
                }
            }
        }
        self.len = self.len.min(kept + 1);
    }

    /// Makes every entry point directly at the entry that stands for it. Before, the way
    /// there has at most one step for each kind of access, and one more.
    fn settle(&mut self) {
        for entry in 0..self.entries {
            let mut at = entry as u32;
            while let Some(next) = self.into.get(at as usize).copied() {
                if next == at {
                    break;
                }
                at = next;
            }
            if let Some(into) = self.into.get_mut(entry) {
                *into = at;
            }
        }
    }

    /// Replaces instance pointers and subcontexts by VA spaces: calls `translate`
    /// with an entry of each, in any order, and restores the order if need be.
    ///
    /// # Errors
    ///
    /// The first error of `translate`; the batch is of no use then.
    #[inline(always)]
    pub fn translate<E>(
        &mut self,
        mut translate: impl FnMut(u32) -> Result<u64, E>,
    ) -> Result<(), E> {
        let Some(records) = self.records.get_mut(..self.len) else {
            return Ok(());
        };
        let mut rising = true;
        let mut last: Option<(u64, u64)> = None;
        for record in records.iter_mut() {
            let space = match last {
                Some((who, space)) if who == record.who => space,
                _ => {
                    let space = translate(record.entry)?;
                    rising &= last.is_none_or(|(_, before)| before < space);
                    last = Some((record.who, space));
                    space
                }
            };
            record.who = space;
        }
        if !rising {
            self.order_again();
        }
        Ok(())
    }

    /// Puts the faults in order by VA space, where that is not the order of the instance pointers.
    #[cold]
    fn order_again(&mut self) {
        let records = self.records.get_mut(..self.len).unwrap_or(&mut []);
        sort(records, &mut self.spare, |r| (r.who, r.place()));
    }

    /// Whether F-order and F-merge hold (after [`Batch::translate`]).
    pub fn is_sound(&self) -> bool {
        let records = self.records();
        let ordered = records.is_sorted_by_key(|r| (r.who, r.place()));
        let instances: usize = records.iter().map(|r| usize::from(r.instances)).sum();
        let merged = self
            .representatives()
            .iter()
            .zip(0..)
            .filter(|(r, i)| *r != i)
            .count();
        ordered
            && instances == self.entries
            && records.len() + merged == self.entries
            && records
                .iter()
                .all(|r| r.accesses.checked_ilog2() == Some(u32::from(r.access)))
    }
}

/// How many records are sorted by insertion.
const RUN: usize = 16;

/// Puts `records` in the order of `key`: runs by insertion, then two by two. `spare` is as
/// long, or longer; what it holds does not matter.
fn sort<K: Ord>(records: &mut [Record], spare: &mut [Record], key: impl Fn(&Record) -> K) {
    for run in records.chunks_mut(RUN) {
        insert(run, &key);
    }
    let mut width = RUN;
    while width < records.len() {
        let pairs = records.chunks(2 * width);
        for (pair, to) in pairs.zip(spare.chunks_mut(2 * width)) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            merge(left, right, to, &key);
        }
        for (record, merged) in records.iter_mut().zip(spare.iter()) {
            *record = *merged;
        }
        width *= 2;
    }
}

/// Puts a short `run` in the order of `key`, by insertion.
///
/// The sort of `core` inserts as well where there is as little, but comes with all of its other ways. One ends in a
/// panic about orders that contradict themselves, which objtool does not know for one.
fn insert<K: Ord>(run: &mut [Record], key: impl Fn(&Record) -> K) {
    for end in 2..=run.len() {
        let Some(front) = run.get_mut(..end) else {
            return;
        };
        let Some((last, sorted)) = front.split_last() else {
            return;
        };
        let own = key(last);
        let before = sorted.iter().rposition(|record| key(record) <= own);
        if let Some(later) = front.get_mut(before.map_or(0, |at| at + 1)..) {
            later.rotate_right(1);
        }
    }
}

/// Merges two ordered slices into `to`.
fn merge<K: Ord>(left: &[Record], right: &[Record], to: &mut [Record], key: impl Fn(&Record) -> K) {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    for slot in to {
        let next = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) if key(r) < key(l) => right.next(),
            (Some(_), _) => left.next(),
            (None, _) => right.next(),
        };
        match next {
            Some(record) => *slot = *record,
            None => return,
        }
    }
}

/// Merges `from` into `to`; the one with the more intrusive access stands for both.
fn join(to: &mut Record, from: &Record, into: &mut [u32]) {
    let (instances, accesses) = (
        to.instances.saturating_add(from.instances),
        to.accesses | from.accesses,
    );
    let gone = if from.access > to.access {
        let gone = to.entry;
        *to = *from;
        gone
    } else {
        from.entry
    };
    to.instances = instances;
    to.accesses = accesses;
    if let Some(slot) = into.get_mut(gone as usize) {
        *slot = to.entry;
    }
}

/// A place in a table of a power of two of them. Neighbouring pages, the usual company,
/// get different ones.
fn hash(record: &Record, places: usize) -> usize {
    let mixed = (record.address ^ record.who) >> 12;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(24) as usize & places.wrapping_sub(1)
}
