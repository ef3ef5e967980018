// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A batch of faults: coalesced as they are read, then put in order.
//!
//! All memory is had when the batch is made. Reading is one step per entry;
//! ordering is O(n log n) by the sort of `core`, which allocates nothing and is
//! done after one pass where the faults came in order.

use super::Record;
use crate::mem::{OutOfMemory, TryVec};

/// The faults of one batch.
pub struct Batch {
    /// As long as the ring; the first `len` are in use.
    records: TryVec<Record>,
    /// For each entry read, the entry that stands for it: itself, or one that it
    /// was merged into, perhaps over several steps until [`Batch::settle`].
    into: TryVec<u32>,
    /// For each µTLB, a place in `records` that may hold its last fault. Never
    /// cleared: a place is only believed if the record there matches.
    last_of_utlb: TryVec<u32>,
    len: usize,
    /// Entries read.
    entries: usize,
    /// Whether all faults so far are of one instance pointer and subcontext.
    single: bool,
}

impl Batch {
    /// For a ring of `ring` entries and a GPU with `utlbs` µTLBs.
    pub fn new(ring: u32, utlbs: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            records: TryVec::filled(ring as usize, Record::default())?,
            into: TryVec::filled(ring as usize, 0)?,
            last_of_utlb: TryVec::filled(utlbs as usize, 0)?,
            len: 0,
            entries: 0,
            single: true,
        })
    }

    /// Forgets all faults.
    pub fn clear(&mut self) {
        self.len = 0;
        self.entries = 0;
        self.single = true;
    }

    /// Entries read, coalesced ones included.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Most entries it can hold.
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
    /// Two places are looked at, as upstream does: the last fault of the same µTLB
    /// and the last fault of all. The rest is found by [`Batch::order`].
    pub fn absorb(&mut self, n: usize, coalesce: bool) {
        let from = self.len;
        for at in from..from.saturating_add(n) {
            let Some(record) = self.records.get(at).copied() else {
                return;
            };
            if let Some(into) = self.into.get_mut(self.entries) {
                *into = record.entry;
            }
            self.entries += 1;
            if coalesce && record.fatal == 0 && self.merge(&record) {
                continue;
            }
            if let Some(previous) = self.len.checked_sub(1) {
                let before = self.records.get(previous).map(|r| r.who);
                self.single &= before == Some(record.who);
            }
            if let Some(last) = self.last_of_utlb.get_mut(usize::from(record.utlb)) {
                *last = self.len as u32;
            }
            // Where none was merged yet, it stands there already.
            if self.len != at {
                if let Some(slot) = self.records.get_mut(self.len) {
                    *slot = record;
                }
            }
            self.len += 1;
        }
    }

    fn merge(&mut self, record: &Record) -> bool {
        let last_of_utlb = self.last_of_utlb.get(usize::from(record.utlb)).copied();
        let last = self.len.checked_sub(1);
        for place in [last, last_of_utlb.map(|p| p as usize)]
            .into_iter()
            .flatten()
        {
            if place >= self.len {
                continue;
            }
            if let Some(to) = self.records.get_mut(place) {
                if to.merges_with(record) {
                    join(to, record, &mut self.into);
                    return true;
                }
            }
        }
        false
    }

    /// Puts the faults in the order of whose, address, falling access, and merges
    /// what is then side by side if `coalesce`.
    pub fn order(&mut self, coalesce: bool) {
        let Some(records) = self.records.get_mut(..self.len) else {
            return;
        };
        if self.single {
            records.sort_unstable_by_key(Record::place);
        } else {
            records.sort_unstable_by_key(|r| (r.who, r.place()));
        }
        if coalesce {
            self.merge_neighbours();
        }
        self.settle();
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

    /// Makes every entry point at what stands for it in one step. A way there has
    /// at most one step for each kind of access, and one more.
    fn settle(&mut self) {
        if self.len == self.entries {
            return;
        }
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
            records.sort_unstable_by_key(|r| (r.who, r.place()));
        }
        Ok(())
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

/// Merges `from` into `to`; the one with the more intrusive access stands for both.
fn join(to: &mut Record, from: &Record, into: &mut [u32]) {
    let (stands, gone) = if from.access > to.access {
        (from, to.entry)
    } else {
        (&*to, from.entry)
    };
    if let Some(slot) = into.get_mut(gone as usize) {
        *slot = stands.entry;
    }
    *to = Record {
        instances: to.instances.saturating_add(from.instances),
        accesses: to.accesses | from.accesses,
        ..*stands
    };
}
