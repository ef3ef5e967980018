// SPDX-License-Identifier: GPL-2.0 OR MIT

//! From a stream of faults to groups of them: coalescing, order, va_blocks, pages.

use super::{Access, Fault, PAGE_SIZE};
use core::ops::Range;

/// Faults in a batch, at most: the order keeps their places in 16 bits.
pub const MAX_BATCH: usize = 1 << 16;

/// A batch of more than [`MAX_BATCH`] faults, or with too little room for its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// The last fault of a µTLB. One for each, kept by the caller from batch to batch,
/// at first [`Last::default`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Last {
    /// The batch that `fault` belongs to; so that none need be cleared for the next.
    batch: u64,
    fault: u32,
}

/// What became of a fault that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// It stands for itself.
    New,
    /// The fault at this place stands for it.
    Into(usize),
    /// It stands for the fault at this place, and for those that that one stood for.
    Replaces(usize),
}

/// Takes in the faults of a batch and drops duplicates on the way, in constant time
/// for each: those on the page of the last fault of the same µTLB, and those on
/// the page of the last fault of all, if they access it no more intrusively
/// (`fetch_fault_buffer_try_merge_entry`). What it misses, the order finds.
pub struct Coalescer<'a> {
    faults: &'a mut [Fault],
    utlbs: &'a mut [Last],
    batch: u64,
    len: usize,
    distinct: usize,
    last: Option<usize>,
    merges: bool,
}

impl<'a> Coalescer<'a> {
    /// Fills `faults` with the batch number `batch`, which must never have been used
    /// with these `utlbs` and not be 0. With `merges` false every fault stands for
    /// itself (upstream's parameter `uvm_perf_fault_coalesce`, and cancel on Pascal).
    pub fn new(faults: &'a mut [Fault], utlbs: &'a mut [Last], batch: u64, merges: bool) -> Self {
        let room = faults.len().min(MAX_BATCH);
        Self {
            faults: &mut faults[..room],
            utlbs,
            batch,
            len: 0,
            distinct: 0,
            last: None,
            merges,
        }
    }

    /// Adds a fault, whose `instances`, `accesses` and filter flag are set here;
    /// `None` if there is no room.
    pub fn add(&mut self, mut fault: Fault) -> Option<Merge> {
        let at = self.len;
        if at == self.faults.len() {
            return None;
        }
        fault.address &= !(PAGE_SIZE - 1);
        fault.instances = 1;
        fault.accesses = fault.access.bit();
        fault.flags &= !Fault::FILTERED;
        let merge = self.merge(&mut fault, at);
        self.faults[at] = fault;
        self.len += 1;
        if merge == Merge::New {
            self.distinct += 1;
            self.last = Some(at);
        }
        Some(merge)
    }

    /// Faults in the batch, filtered ones too.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Faults that stand for themselves.
    pub fn distinct(&self) -> usize {
        self.distinct
    }

    fn merge(&mut self, fault: &mut Fault, at: usize) -> Merge {
        let utlb = self.utlbs.get_mut(usize::from(fault.utlb));
        let mine = utlb
            .as_ref()
            .filter(|u| u.batch == self.batch)
            .map(|u| u.fault as usize);
        let merge = if self.merges && !fault.is(Fault::FATAL) {
            let on_page = |i: usize| {
                let f = self.faults.get(i)?;
                (f.address == fault.address && f.space == fault.space && !f.is(Fault::FATAL))
                    .then_some((i, fault.access <= f.access))
            };
            match (mine.and_then(on_page), self.last) {
                (Some((i, true)), _) => Merge::Into(i),
                (Some((i, false)), _) => Merge::Replaces(i),
                (None, Some(last)) => match on_page(last) {
                    Some((i, true)) => Merge::Into(i),
                    _ => Merge::New,
                },
                (None, None) => Merge::New,
            }
        } else {
            Merge::New
        };
        match merge {
            Merge::New => {}
            Merge::Into(i) => {
                let leader = &mut self.faults[i];
                leader.instances += 1;
                leader.accesses |= fault.accesses;
                fault.flags |= Fault::FILTERED;
                fault.instances = 0;
                return merge;
            }
            Merge::Replaces(i) => {
                let old = &mut self.faults[i];
                fault.instances += old.instances;
                fault.accesses |= old.accesses;
                old.flags |= Fault::FILTERED;
                old.instances = 0;
                if self.last == Some(i) {
                    self.last = Some(at);
                }
            }
        }
        if let Some(u) = utlb {
            *u = Last {
                batch: self.batch,
                fault: at as u32,
            };
        }
        merge
    }
}

/// A fault's place in the order of a batch: address space first, then page, then the
/// most intrusive access, then arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    space: u64,
    /// From the top: page number (45 bits; GPUs' addresses have 57 bits at most),
    /// access turned over (3 bits), place (16 bits).
    rest: u64,
}

impl Key {
    const INDEX_BITS: u32 = 16;
    const ACCESS_BITS: u32 = 3;

    fn new(fault: &Fault, index: usize) -> Self {
        let access = Access::AtomicStrong as u64 - fault.access as u64;
        let page = fault.address / PAGE_SIZE;
        let rest = (page << Self::ACCESS_BITS | access) << Self::INDEX_BITS | index as u64;
        Self {
            space: fault.space,
            rest,
        }
    }

    /// The place of the fault in the batch.
    pub fn index(self) -> usize {
        (self.rest & ((1 << Self::INDEX_BITS) - 1)) as usize
    }

    /// The virtual address of the page.
    pub fn address(self) -> u64 {
        (self.rest >> (Self::INDEX_BITS + Self::ACCESS_BITS)) * PAGE_SIZE
    }

    /// The address space.
    pub fn space(self) -> u64 {
        self.space
    }

    fn block(self) -> (u64, u64) {
        (self.space, self.address() >> 21)
    }

    fn page(self) -> (u64, u64) {
        (self.space, self.address())
    }
}

/// Puts the unfiltered ones of `faults` in order, in `keys`, and returns the part
/// of it that was filled. O(n log n) (`preprocess_fault_batch`).
pub fn order<'a>(faults: &[Fault], keys: &'a mut [Key]) -> Result<&'a [Key], TooMany> {
    if faults.len() > MAX_BATCH {
        return Err(TooMany);
    }
    let mut n = 0usize;
    let mut one_space = true;
    let mut sorted = true;
    for (i, fault) in faults
        .iter()
        .enumerate()
        .filter(|(_, f)| !f.is(Fault::FILTERED))
    {
        let key = Key::new(fault, i);
        if let Some(last) = n.checked_sub(1).and_then(|i| keys.get(i)) {
            one_space &= last.space == key.space;
            sorted &= *last <= key;
        }
        *keys.get_mut(n).ok_or(TooMany)? = key;
        n += 1;
    }
    let keys = keys.get_mut(..n).ok_or(TooMany)?;
    match (sorted, one_space) {
        (true, _) => {}
        (false, true) => heap_sort(keys, |a, b| a.rest < b.rest),
        (false, false) => heap_sort(keys, |a, b| a < b),
    }
    Ok(keys)
}

/// Heap sort: in place and O(n log n) whatever the keys are. The quick sort of `core`
/// calls itself, and 16 frames of it, which addresses of a program's choice might
/// provoke in a batch of 256, nearly fill a kernel stack.
fn heap_sort(keys: &mut [Key], less: impl Fn(&Key, &Key) -> bool) {
    for at in (0..keys.len() / 2).rev() {
        sift_down(keys, at, &less);
    }
    for end in (1..keys.len()).rev() {
        keys.swap(0, end);
        sift_down(&mut keys[..end], 0, &less);
    }
}

/// Moves the key at `at` down to where no child is greater.
fn sift_down(heap: &mut [Key], mut at: usize, less: impl Fn(&Key, &Key) -> bool) {
    let Some(&key) = heap.get(at) else { return };
    loop {
        let mut child = 2 * at + 1;
        if child + 1 < heap.len() {
            child += usize::from(less(&heap[child], &heap[child + 1]));
        }
        match heap.get(child) {
            Some(c) if less(&key, c) => heap[at] = *c,
            _ => break,
        }
        at = child;
    }
    heap[at] = key;
}

/// Faults of one va_block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The address space.
    pub space: u64,
    /// The address of the 2 MiB that hold the va_block.
    pub block: u64,
    /// Its part of the order.
    pub keys: Range<usize>,
}

/// The va_blocks of an ordered batch, one after the other.
pub fn groups(order: &[Key]) -> impl Iterator<Item = Group> + '_ {
    let mut at = 0;
    order
        .chunk_by(|a, b| a.block() == b.block())
        .filter_map(move |keys| {
            let (space, block) = keys.first()?.block();
            let from = at;
            at += keys.len();
            Some(Group {
                space,
                block: block << 21,
                keys: from..at,
            })
        })
}

/// Faults of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The address space.
    pub space: u64,
    /// The address.
    pub address: u64,
    /// The place in the batch of the most intrusive fault; of several, the first.
    pub leader: usize,
    /// Its part of the order.
    pub keys: Range<usize>,
}

impl Page {
    /// Its faults, those that were merged counted too, and [`Access::bit`] of all.
    pub fn count(&self, faults: &[Fault], order: &[Key]) -> (u32, u8) {
        let keys = order.get(self.keys.clone()).unwrap_or(&[]);
        let mine = keys.iter().filter_map(|k| faults.get(k.index()));
        mine.fold((0, 0), |(n, accesses), f| {
            (n + f.instances, accesses | f.accesses)
        })
    }

    /// Sets `flag` in all its faults: what is decided for one of them, throttling or
    /// that a prefetch is invalid, holds for the page (`fault_entry_duplicate_flags`).
    pub fn mark(&self, faults: &mut [Fault], order: &[Key], flag: u8) {
        for key in order.get(self.keys.clone()).unwrap_or(&[]) {
            if let Some(f) = faults.get_mut(key.index()) {
                f.flags |= flag;
            }
        }
    }
}

/// The pages of an ordered batch, one after the other.
pub fn pages(order: &[Key]) -> impl Iterator<Item = Page> + '_ {
    let mut at = 0;
    order
        .chunk_by(|a, b| a.page() == b.page())
        .filter_map(move |keys| {
            let leader = *keys.first()?;
            let from = at;
            at += keys.len();
            Some(Page {
                space: leader.space,
                address: leader.address(),
                leader: leader.index(),
                keys: from..at,
            })
        })
}

#[cfg(test)]
mod tests;
