// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The execution-ID correlation table (DeepUM §4.2, figure 6), and with each ID
//! its UM block correlation table.
//!
//! An entry holds records of four IDs: the three kernels that ran before the
//! entry's, and the one that ran after it. How many records there are depends on the
//! program; they are in most-recently-used order.
//!
//! Every allocation is accounted for before it is made. What would exceed the limit
//! drops the least recently used IDs first.

use super::blocks::BlockTable;
use super::{Config, ExecId, UmBlock};
use crate::mem::{OutOfMemory, ProcessVec};

/// "No slot" in links.
const NONE: u32 = u32::MAX;
/// IDs in a hash bucket, at most, so that no choice of IDs makes a search long.
const MAX_CHAIN: usize = 16;
/// IDs dropped to make room, at most, in one call.
const MAX_DROPS: usize = 8;
/// Trust of a kernel in whose table there is no evidence yet.
const FIRST_TRUST: u8 = 2;
const MAX_TRUST: u8 = 3;

/// Where an ID's entry is. Valid until an entry is dropped; [`Kernels::is`] tells.
pub type Slot = u32;

/// The kernels that ran before one, the last of them last.
pub type Before = [ExecId; 3];

#[derive(Clone, Copy, Default)]
struct Record {
    before: Before,
    next: ExecId,
}

#[derive(Default)]
struct Entry {
    /// `None` in a slot that is free.
    id: Option<ExecId>,
    /// The next slot in the hash bucket, or in the list of free slots.
    chain: u32,
    older: u32,
    newer: u32,
    records: ProcessVec<Record>,
    /// Room in `records`, which grows by doubling.
    room: usize,
    table: BlockTable,
    /// The number of forgotten ranges that were applied to `table`.
    forgotten: u32,
    trust: u8,
    /// Blocks that faulted in the worst execution without prefetching: how many
    /// blocks the kernel touches, about.
    size: u32,
}

/// What one execution of a kernel says about its table.
pub struct Evidence {
    /// Blocks in the table before.
    pub known_blocks: u32,
    /// Blocks handed out for it.
    pub prefetched: u32,
    /// Blocks that faulted during that execution.
    pub faults: u32,
    /// Those that were not in the table.
    pub unknown: u32,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.room * size_of::<Record>() + self.table.bytes()
    }
}

/// The correlation table of a predictor, by execution ID.
pub struct Kernels {
    entries: ProcessVec<Entry>,
    free: u32,
    buckets: ProcessVec<u32>,
    oldest: u32,
    newest: u32,
    live: u32,
    bytes: usize,
    dropped: u64,
    config: Config,
}

impl Kernels {
    /// An empty table, which keeps within the limits of `config`.
    pub fn new(config: Config) -> Result<Self, OutOfMemory> {
        let buckets = (config.max_kernels as usize / 4).next_power_of_two();
        Ok(Self {
            entries: ProcessVec::new(),
            free: NONE,
            buckets: ProcessVec::filled(buckets, NONE)?,
            oldest: NONE,
            newest: NONE,
            live: 0,
            bytes: buckets * size_of::<u32>(),
            dropped: 0,
            config,
        })
    }

    /// The entry of `id`.
    pub fn find(&self, id: ExecId) -> Option<Slot> {
        let mut at = self.buckets.get(self.bucket(id)).copied()?;
        while let Some(e) = self.entries.get(at as usize) {
            if e.id == Some(id) {
                return Some(at);
            }
            at = e.chain;
        }
        None
    }

    /// The entry of `id`, made if need be, as the most recently used one.
    pub fn find_or_insert(&mut self, id: ExecId, forgets: u32) -> Result<Slot, OutOfMemory> {
        if let Some(slot) = self.find(id) {
            self.touch(slot);
            return Ok(slot);
        }
        self.shorten(id);
        if self.live >= self.config.max_kernels {
            self.drop_oldest(NONE);
        }
        let slot = match self.entries.get(self.free as usize) {
            Some(e) => {
                let slot = self.free;
                self.free = e.chain;
                slot
            }
            None => {
                self.make_room(size_of::<Entry>(), NONE)?;
                self.entries.push(Entry::default())?;
                self.bytes += size_of::<Entry>();
                self.entries.len() as u32 - 1
            }
        };
        let bucket = self.bucket(id);
        let head = self
            .buckets
            .get_mut(bucket)
            .map_or(NONE, |b| core::mem::replace(b, slot));
        if let Some(e) = self.entries.get_mut(slot as usize) {
            *e = Entry {
                id: Some(id),
                chain: head,
                older: NONE,
                newer: NONE,
                trust: FIRST_TRUST,
                forgotten: forgets,
                ..Entry::default()
            };
        }
        self.live += 1;
        self.link_newest(slot);
        Ok(slot)
    }

    /// Whether `slot` is still the entry of `id`.
    pub fn is(&self, slot: Slot, id: ExecId) -> bool {
        self.entries
            .get(slot as usize)
            .is_some_and(|e| e.id == Some(id))
    }

    /// Makes an entry the most recently used one.
    pub fn touch(&mut self, slot: Slot) {
        if slot != self.newest {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    /// Records that `next` ran after the kernel of `slot`, which ran after `before`.
    pub fn learn(&mut self, slot: Slot, before: Before, next: ExecId) -> Result<(), OutOfMemory> {
        let Some(e) = self.entries.get(slot as usize) else {
            return Ok(());
        };
        let known = e.records.iter().position(|r| r.before == before);
        let full = e.records.len() >= self.config.max_records as usize;
        if known.is_none() && !full && e.records.len() == e.room {
            self.grow_records(slot)?;
        }
        if let Some(e) = self.entries.get_mut(slot as usize) {
            let record = Record { before, next };
            if known.is_none() && !full {
                e.records.push(record)?;
            }
            if let Some(last) = e.records.len().checked_sub(1) {
                let at = known.unwrap_or(last);
                e.records[at] = record;
                e.records[..=at].rotate_right(1);
            }
        }
        Ok(())
    }

    /// The kernel that is expected to run after `id`, which ran after `before`: what
    /// followed the same three the last time; else what always followed.
    pub fn predict(&self, id: ExecId, before: Before) -> Option<ExecId> {
        let records = &self.entries.get(self.find(id)? as usize)?.records;
        if let Some(r) = records.iter().find(|r| r.before == before) {
            return Some(r.next);
        }
        let first = records.first()?.next;
        records.iter().all(|r| r.next == first).then_some(first)
    }

    /// The block table of an entry.
    pub fn table(&mut self, slot: Slot) -> Option<&mut BlockTable> {
        self.entries.get_mut(slot as usize).map(|e| &mut e.table)
    }

    /// Inserts `block` in the table of an entry, which grows within the limit.
    pub fn insert_block(&mut self, slot: Slot, block: UmBlock) -> Result<(), OutOfMemory> {
        let shape = self.config.shape;
        let Some(e) = self.entries.get(slot as usize) else {
            return Ok(());
        };
        let (before, growth) = (e.table.bytes(), e.table.growth(block, shape));
        // Twice, since the old memory is held while the new one is filled.
        let may_grow = growth != 0 && self.make_room(growth + before, slot).is_ok();
        let Some(e) = self.entries.get_mut(slot as usize) else {
            return Ok(());
        };
        let result = e.table.insert(block, shape, may_grow);
        self.bytes += e.table.bytes() - before;
        result
    }

    /// Applies forgotten ranges to the table of an entry, up to number `upto`.
    pub fn forget(&mut self, slot: Slot, upto: u32, gone: impl Fn(UmBlock, u32) -> bool) {
        let shape = self.config.shape;
        if let Some(e) = self.entries.get_mut(slot as usize) {
            if e.forgotten != upto {
                let before = e.table.bytes();
                let since = core::mem::replace(&mut e.forgotten, upto);
                e.table.forget(shape, |b| gone(b, since));
                self.bytes -= before - e.table.bytes();
            }
        }
    }

    /// Whether what the table of an entry says is worth acting on.
    pub fn is_trusted(&self, slot: Slot) -> bool {
        self.entries.get(slot as usize).is_some_and(|e| e.trust > 0)
    }

    /// Raises or lowers the trust in an entry's table.
    ///
    /// Prefetched blocks do not fault, so with prefetching only the unknown ones
    /// tell, by how many they are for a kernel of this size. Without, the table is
    /// good if it had most of what faulted and is not much bigger than the kernel.
    pub fn judge(&mut self, slot: Slot, v: &Evidence) {
        let Some(e) = self.entries.get_mut(slot as usize) else {
            return;
        };
        let verdict = if v.prefetched != 0 {
            (v.unknown > (e.size / 8).max(2)).then_some(false)
        } else {
            e.size = e.size.max(v.faults);
            let covers = v.unknown <= v.faults / 2;
            let precise = v.known_blocks / 4 <= e.size;
            (v.known_blocks != 0 && v.faults != 0).then_some(covers && precise)
        };
        match verdict {
            Some(true) => e.trust = (e.trust + 1).min(MAX_TRUST),
            Some(false) => e.trust = e.trust.saturating_sub(1),
            None => {}
        }
    }

    /// IDs in the table.
    pub fn len(&self) -> u32 {
        self.live
    }

    /// Bytes of memory held, all tables together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// IDs dropped so far for lack of room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn bucket(&self, id: ExecId) -> usize {
        // Fibonacci hashing; the length is a power of two.
        let hash = (id.0 ^ self.config.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & self.buckets.len().wrapping_sub(1)
    }

    /// Drops the last ID of the bucket of `id` if the bucket is full.
    fn shorten(&mut self, id: ExecId) {
        let mut at = self.buckets.get(self.bucket(id)).copied().unwrap_or(NONE);
        let mut length = 0;
        while let Some(e) = self.entries.get(at as usize) {
            length += 1;
            if length >= MAX_CHAIN {
                self.drop_entry(at);
                return;
            }
            at = e.chain;
        }
    }

    /// Sets how many bytes the tables may take. Where they take more, some of the least recently used
    /// IDs are dropped at once.
    pub fn set_memory_limit(&mut self, limit: usize) {
        self.config.memory_limit = limit;
        // What cannot be dropped now is dropped when it next grows.
        let _ = self.make_room(0, NONE);
    }

    /// Drops old entries, but not `keep`, until `bytes` more may be allocated.
    fn make_room(&mut self, bytes: usize, keep: Slot) -> Result<(), OutOfMemory> {
        for _ in 0..MAX_DROPS {
            if self.bytes.saturating_add(bytes) <= self.config.memory_limit {
                return Ok(());
            }
            if !self.drop_oldest(keep) {
                break;
            }
        }
        let fits = self.bytes.saturating_add(bytes) <= self.config.memory_limit;
        fits.then_some(()).ok_or(OutOfMemory)
    }

    fn grow_records(&mut self, slot: Slot) -> Result<(), OutOfMemory> {
        let Some(e) = self.entries.get(slot as usize) else {
            return Ok(());
        };
        let room = (e.room * 2).clamp(1, self.config.max_records as usize);
        let more = room.saturating_sub(e.room) * size_of::<Record>();
        self.make_room(more, slot)?;
        let mut bigger = ProcessVec::with_capacity(room)?;
        if let Some(e) = self.entries.get_mut(slot as usize) {
            for &r in e.records.iter() {
                bigger.push(r)?;
            }
            e.records = bigger;
            e.room = room;
            self.bytes += more;
        }
        Ok(())
    }

    /// Drops the least recently used entry, but neither the newest, which is the
    /// kernel that runs, nor `keep`.
    fn drop_oldest(&mut self, keep: Slot) -> bool {
        let mut at = self.oldest;
        while at == keep || at == self.newest {
            match self.entries.get(at as usize) {
                Some(e) => at = e.newer,
                None => return false,
            }
        }
        let found = at != NONE;
        self.drop_entry(at);
        found
    }

    fn drop_entry(&mut self, slot: Slot) {
        let Some(id) = self.entries.get(slot as usize).and_then(|e| e.id) else {
            return;
        };
        self.unlink(slot);
        self.unchain(slot, id);
        if let Some(e) = self.entries.get_mut(slot as usize) {
            self.bytes -= e.bytes();
            *e = Entry {
                chain: self.free,
                ..Entry::default()
            };
        }
        self.free = slot;
        self.live -= 1;
        self.dropped += 1;
    }

    fn unchain(&mut self, slot: Slot, id: ExecId) {
        let bucket = self.bucket(id);
        let next = self.entries.get(slot as usize).map_or(NONE, |e| e.chain);
        let mut at = self.buckets.get(bucket).copied().unwrap_or(NONE);
        if at == slot {
            if let Some(b) = self.buckets.get_mut(bucket) {
                *b = next;
            }
            return;
        }
        while let Some(e) = self.entries.get_mut(at as usize) {
            if e.chain == slot {
                e.chain = next;
                return;
            }
            at = e.chain;
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Some(e) = self.entries.get(slot as usize) else {
            return;
        };
        let (older, newer) = (e.older, e.newer);
        match self.entries.get_mut(older as usize) {
            Some(o) => o.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
    }

    fn link_newest(&mut self, slot: Slot) {
        let older = self.newest;
        if let Some(e) = self.entries.get_mut(slot as usize) {
            e.older = older;
            e.newer = NONE;
        }
        match self.entries.get_mut(older as usize) {
            Some(o) => o.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }
}
