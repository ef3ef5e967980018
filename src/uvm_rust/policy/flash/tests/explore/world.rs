// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The machine that the threads run on: locks, host memory, a device that is slow, and what
//! is asked of all of them.

use super::super::super::arbiter::{Arbiter, Waits};
use super::super::super::pool::{Pool, Who, LEAST};
use super::super::super::table::Part;
use super::super::super::tier::{self, Records, Tier};
use super::super::super::wants::{Asks, Wants};
use super::super::super::{BlockPages, Config, Piece, Place, Table};
use super::Lack;
use crate::mem::TryVec;
use crate::policy::mask::{PageMask, Region};
use crate::testing::{Exploration, SpaceLock};
use std::boxed::Box;
use std::cell::Cell;
use std::format;
use std::ops::Deref;
use std::rc::Rc;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// A page of the device. The bytes of a page are one value.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    /// What it was encrypted with.
    pub(super) stamp: u64,
    pub(super) value: u32,
}

/// A va_block. It stays where it is when it is dead, as references to it keep it.
pub(super) struct Block {
    pub(super) space: usize,
    pub(super) length: u16,
    /// The host memory that it has. After a split both halves have it.
    pub(super) folio: Rc<()>,
    pub(super) dead: bool,
    pub(super) locked: bool,
    /// Whether its memory is read-mostly: copies stay on flash.
    pub(super) read_mostly: bool,
    pub(super) state: BlockPages,
    /// Pages that the host has, and that upstream knows of.
    pub(super) resident: PageMask,
    /// Pages that may be mapped by a CPU (`maybe_mapped_pages`).
    pub(super) mapped: PageMask,
    /// Those of them that may be written to without a fault.
    pub(super) writable: PageMask,
    /// What is on a GPU, and not in host memory.
    pub(super) on_gpu: PageMask,
    /// What the GPU's memory holds.
    pub(super) gpu: Box<[u32; 512]>,
    /// What host memory holds.
    pub(super) memory: Box<[u32; 512]>,
    /// What the program wrote last, 0 for what it has not, or has discarded; [`ANY`] for what
    /// it has discarded lazily.
    pub(super) value: Box<[u32; 512]>,
    /// What was discarded lazily, and may be dropped where it is: nothing has used it since.
    pub(super) stale: PageMask,
    /// What GPU faults that were put off wait for.
    pub(super) wants: Wants,
    /// They wait for it, and nobody has begun to read it.
    pub(super) waits: Option<Waits>,
    /// Whether the tier knows of it.
    pub(super) known: bool,
    /// Whether its state is of the device, which it keeps.
    pub(super) used: bool,
    /// Whether a GPU copies into or out of its host memory (block->tracker).
    pub(super) gpu_works: bool,
    /// Pages of host memory that GPUs have still to write to, and what they write there.
    to_come: PageMask,
    coming: Box<[u32; 512]>,
    record: tier::Block<usize, usize>,
}

/// The value of a page that was discarded and may still be mapped: whatever is there is right.
pub(super) const ANY: u32 = u32::MAX - 1;

impl Block {
    /// As `tried()` of ffi/flash/block.rs.
    pub(super) fn tried(&mut self, reader: Asks, failed: bool) {
        self.wants.tried(reader, failed, Some(&self.state));
    }

    pub(super) fn new(space: usize, length: u16, read_mostly: bool) -> Self {
        Self {
            space,
            length,
            folio: Rc::new(()),
            dead: false,
            locked: false,
            read_mostly,
            state: BlockPages::new(length),
            resident: PageMask::EMPTY,
            mapped: PageMask::EMPTY,
            writable: PageMask::EMPTY,
            on_gpu: PageMask::EMPTY,
            gpu: Box::new([0; 512]),
            memory: Box::new([0; 512]),
            value: Box::new([0; 512]),
            stale: PageMask::EMPTY,
            wants: Wants::default(),
            waits: None,
            known: false,
            used: false,
            gpu_works: false,
            to_come: PageMask::EMPTY,
            coming: Box::new([0; 512]),
            record: tier::Block::new(space),
        }
    }

    /// drop_residency() of pages that were unmapped.
    pub(super) fn left_host(&mut self, pages: &PageMask) {
        self.resident -= *pages;
    }

    /// What is on the GPU comes to the host, mapped nowhere: a copy of a copy engine, which has its
    /// time, and writes until [`Block::wait_gpus`].
    pub(super) fn leave_gpu(&mut self, pages: &PageMask) {
        let pages = self.on_gpu & *pages;
        for p in pages.pages().map(usize::from) {
            self.coming[p] = self.gpu[p];
            self.memory[p] = u32::MAX;
        }
        self.to_come |= pages;
        self.gpu_works |= !pages.is_empty();
        self.on_gpu -= pages;
        self.resident |= pages;
    }

    /// What GPUs have still to write to the pages of `lower` from `at` on, they write here.
    pub(super) fn takes_coming(&mut self, lower: &mut Self, at: u16) {
        let coming = &lower.coming[usize::from(at)..];
        self.coming[..coming.len()].copy_from_slice(coming);
        self.to_come = lower.to_come.shifted_down(at);
        lower.to_come &= Region::new(0, at).into();
    }

    /// The GPUs have done what they had to do on it (block->tracker).
    pub(super) fn wait_gpus(&mut self) {
        self.gpu_works = false;
        let to_come = core::mem::take(&mut self.to_come);
        for p in to_come.pages().map(usize::from) {
            self.memory[p] = self.coming[p];
        }
    }

    /// uvm_seam_flash_unmap(), when all that it had to wait for has come.
    pub(super) fn unmap(&mut self, pages: &PageMask) {
        self.wait_gpus();
        self.mapped -= *pages;
        self.writable -= *pages;
    }
}

/// A VA space as spills and fetches see it: they hold its lock, and its end makes all they do void.
#[derive(Default)]
pub(super) struct Space {
    pub(super) lock: SpaceLock,
    pub(super) gone: bool,
    /// The process's death has ended, so its locks are there no more.
    pub(super) freed: bool,
}

/// Where the bytes of a read go.
#[derive(Clone, Copy)]
pub(super) enum To {
    /// Host memory of a va_block, from this page on.
    Memory(usize, u16),
    /// A buffer of the reader's own.
    Bounce,
}

/// A part of an I/O that the device has not done yet.
struct Pending {
    id: u64,
    at: Place,
    pages: u16,
    /// Where the part begins in the I/O.
    skip: u16,
    /// Where a read puts its bytes; none for writes.
    to: Option<To>,
    slow: bool,
}

/// What there is but once.
pub(super) struct State {
    pub(super) table: Table,
    pub(super) blocks: Vec<Block>,
    pub(super) spaces: Vec<Space>,
    slots: Vec<Vec<Bytes>>,
    pending: Vec<Pending>,
    /// Of I/Os that have not been taken by who began them: what is written, or was read.
    data: Vec<(u64, Vec<Bytes>)>,
    ids: u64,
    pub(super) clock: u32,
    /// Rises whenever an I/O has ended.
    pub(super) progress: u32,
    /// What reads are made with.
    pub(super) pool: Pool<Buffers>,
    /// uvm_rust_tier.dev is this device.
    pub(super) attached: bool,
    /// Somebody suspends the system.
    pub(super) suspends: bool,
    pub(super) closed: bool,
    pub(super) workers: u32,
    tier: Tier<usize, usize, ()>,
    /// Owners, which are VA spaces here.
    owners: Vec<tier::Owner<usize, usize>>,
    /// The queue of fetchers, by owner and number, and those that are at work.
    pub(super) queued: Vec<(usize, u32)>,
    pub(super) fetching: Vec<(usize, u32)>,
    /// Who asks for pages that others read: GPU faults that may be put off, and calls.
    pub(super) askers: u32,
    /// Pages that a tenant may have on the device.
    pub(super) quota: u64,
    /// The first thing that was wrong.
    pub(super) wrong: Option<String>,
}

/// Finds the records of blocks and owners.
pub(super) struct Live<'a> {
    blocks: &'a mut Vec<Block>,
    owners: &'a mut Vec<tier::Owner<usize, usize>>,
}

impl Records for Live<'_> {
    type Block = usize;
    type Owner = usize;

    fn block(&mut self, of: usize) -> &mut tier::Block<usize, usize> {
        &mut self.blocks[of].record
    }

    fn owner(&mut self, of: usize) -> &mut tier::Owner<usize, usize> {
        &mut self.owners[of]
    }

    fn hold(&mut self, _of: usize) -> bool {
        true
    }
}

impl State {
    /// Under the tier's lock.
    pub(super) fn with_tier<T>(
        &mut self,
        f: impl FnOnce(&mut Tier<usize, usize, ()>, &mut Live<'_>) -> T,
    ) -> T {
        let mut live = Live {
            blocks: &mut self.blocks,
            owners: &mut self.owners,
        };
        f(&mut self.tier, &mut live)
    }

    /// A block is there, and published.
    pub(super) fn add_block(&mut self, block: Block) {
        self.blocks.push(block);
        self.know(self.blocks.len() - 1);
    }

    /// The tier knows of a block from now on.
    pub(super) fn know(&mut self, b: usize) {
        if core::mem::replace(&mut self.blocks[b].known, true) {
            self.blame(format!("the tier knows twice of block {b}"));
        }
        let has_pages = self.blocks[b].used;
        self.with_tier(|tier, live| tier.add_block(live, b, has_pages));
    }

    /// It does not any more.
    pub(super) fn forget(&mut self, b: usize) {
        if core::mem::take(&mut self.blocks[b].known) {
            self.with_tier(|tier, live| tier.remove_block(live, b));
        }
    }

    pub(super) fn blame(&mut self, what: String) {
        if self.wrong.is_none() {
            self.wrong = Some(what);
        }
    }

    /// The next of a queue of fetchers.
    pub(super) fn next_of(&mut self, queue: Asks) -> Option<(usize, u32)> {
        let is_of = |(_, fetcher): &(usize, u32)| tier::reads_for(*fetcher) == queue;
        let at = self.queued.iter().position(is_of)?;
        Some(self.queued.remove(at))
    }

    /// The sums of what is to be written there.
    pub(super) fn note_sums(&mut self, mut place: Place, data: &[Bytes]) {
        for bytes in data {
            self.table.set_sum(place, sum_of(bytes));
            place.offset += 1;
        }
    }

    /// An I/O is handed to the device, in two parts that it does when it likes.
    pub(super) fn submit(
        &mut self,
        at: Place,
        data: Vec<Bytes>,
        to: Option<To>,
        slow: bool,
    ) -> u64 {
        self.ids += 1;
        let (id, pages) = (self.ids, data.len() as u16);
        let half = pages / 2;
        for (skip, pages) in [(0, half), (half, pages - half)] {
            if pages > 0 {
                self.pending.push(Pending {
                    id,
                    at,
                    pages,
                    skip,
                    to,
                    slow,
                });
            }
        }
        self.data.push((id, data));
        id
    }

    /// Whether the device takes its time with part `i`.
    pub(super) fn is_slow(&self, i: usize) -> bool {
        self.pending[i].slow
    }

    pub(super) fn io_parts(&self) -> usize {
        self.pending.len()
    }

    /// The device does part `i` of what it has to do.
    pub(super) fn perform(&mut self, i: usize) {
        let part = self.pending.swap_remove(i);
        if self.closed {
            self.blame("the device was closed while it had something to do".into());
        }
        let Some((_, data)) = self.data.iter_mut().find(|(id, _)| *id == part.id) else {
            return;
        };
        let first = part.at.offset + part.skip;
        let cells = &mut self.slots[part.at.slot as usize][usize::from(first)..];
        let skip = usize::from(part.skip);
        let cells = cells.iter_mut().take(usize::from(part.pages));
        for (n, cell) in (skip..).zip(cells) {
            match part.to {
                None => *cell = data[n],
                Some(to) => {
                    data[n] = *cell;
                    // What arrives there is not what it means yet.
                    if let To::Memory(b, page) = to {
                        self.blocks[b].memory[usize::from(page) + n] = u32::MAX;
                    }
                }
            }
        }
    }

    pub(super) fn take_if_done(&mut self, id: u64) -> Option<Vec<Bytes>> {
        if self.pending.iter().any(|p| p.id == id) {
            return None;
        }
        let i = self.data.iter().position(|(of, _)| *of == id)?;
        Some(self.data.swap_remove(i).1)
    }

    pub(super) fn bytes(&self, at: Place, k: u16) -> Bytes {
        self.slots[at.slot as usize][usize::from(at.offset + k)]
    }

    pub(super) fn bytes_mut(&mut self, at: Place, k: u16) -> &mut Bytes {
        &mut self.slots[at.slot as usize][usize::from(at.offset + k)]
    }

    /// Whether these are the bytes, of the `k`th page from there on, whose sum is known. It is that of ciphertext and
    /// stamp: here, of both.
    pub(super) fn has_its_sum(&self, at: Place, k: u16, bytes: &Bytes) -> bool {
        let offset = at.offset + k;
        let sum = self.table.sum(Place { offset, ..at });
        sum.is_none_or(|sum| sum == sum_of(bytes))
    }

    /// The pages are used where they are: what was written there last is still there.
    pub(super) fn look(&mut self, b: usize, pages: &PageMask) {
        let block = &self.blocks[b];
        let wrong = pages
            .pages()
            .filter(|p| block.value[usize::from(*p)] != ANY)
            .find(|p| block.memory[usize::from(*p)] != block.value[usize::from(*p)]);
        if let Some(p) = wrong {
            let (has, want) = (block.memory[usize::from(p)], block.value[usize::from(p)]);
            self.blame(format!("page {p} of block {b} is {has}, not {want}"));
        }
    }

    /// The program writes to pages, one value each.
    pub(super) fn store(&mut self, b: usize, pages: &PageMask) {
        let block = &mut self.blocks[b];
        for p in pages.pages() {
            self.clock += 1;
            block.memory[usize::from(p)] = self.clock;
            // What is discarded stays so, until somebody makes it resident anew.
            let stale = block.stale.next(p, true) == Some(p);
            block.value[usize::from(p)] = if stale { ANY } else { self.clock };
        }
    }

    /// What holds at every moment.
    pub(super) fn check(&mut self) {
        self.table.check();
        for space in 0..self.spaces.len() {
            let held = self.table.held(space as u64);
            if held > self.quota {
                self.blame(format!(
                    "{held} pages are more than the quota, {}",
                    self.quota
                ));
            }
        }
        let mut taken = vec![PageMask::EMPTY; self.slots.len()];
        for b in 0..self.blocks.len() {
            let block = &self.blocks[b];
            let mut placed = PageMask::EMPTY;
            let mut twice = false;
            for piece in block.state.places(&self.table).iter() {
                let pages = PageMask::from(piece.pages);
                twice |= placed.intersects(&pages);
                placed |= pages;
                let from = piece.place.offset;
                let there = Region::new(from, from + piece.pages.pages()).into();
                twice |= taken[piece.place.slot as usize].intersects(&there);
                taken[piece.place.slot as usize] |= there;
            }
            let on = block.state.on_flash();
            let (copies, memory) = (block.state.copies(), block.resident | block.on_gpu);
            let wrong = [
                (twice, "a page twice on flash"),
                (
                    !(on | copies | block.state.kept()).is_subset(&placed),
                    "a page with no place",
                ),
                (
                    on.intersects(&memory),
                    "a page in memory that is on flash only",
                ),
                (block.resident.intersects(&block.on_gpu), "a page twice"),
                (
                    on.intersects(&block.state.spilling()),
                    "a page that is spilled twice",
                ),
                // A split takes the memory first.
                (
                    !copies.is_subset(&memory) && !self.spaces[block.space].lock.writer,
                    "a copy of what is not there",
                ),
            ];
            let lost = block.state.lost() - block.state.kept();
            if let Some((_, what)) = wrong.iter().find(|(is, _)| *is) {
                self.blame(format!("block {b} has {what}"));
            }
            if !lost.is_empty() {
                self.blame(format!("block {b} has lost {lost:?}"));
            }
        }
    }
}

/// What threads share. One runs at a time, from one point where it waits to the next.
pub(super) struct World {
    shared: Exploration<State>,
    pub(super) lack: Option<Lack>,
    /// One I/O of a spill or a move in so many fails.
    pub(super) fails: Cell<usize>,
    /// One piece of a read in so many is neither good nor failed: there was no memory, or the
    /// decryption failed.
    pub(super) unsure: Cell<usize>,
    /// One read of a piece in so many fails; and of one in so many a page is changed on the way.
    pub(super) lapses: Cell<usize>,
    /// A page that no move can read, ever.
    pub(super) bad: Cell<Option<Place>>,
    pub(super) arbiter: Arbiter,
}

impl Deref for World {
    type Target = Exploration<State>;

    fn deref(&self) -> &Self::Target {
        &self.shared
    }
}

impl World {
    pub(super) fn new(seed: u64, slots: u32, quota: u64, lack: Option<Lack>) -> Self {
        let spaces = 2;
        let config = Config {
            slots,
            checksums: seed % 2 == 0,
            quota,
        };
        let mut table = Table::new(config).unwrap();
        if let Some(Lack::Policy(part)) = lack {
            table.take_out(Some(part));
        }
        let state = State {
            table,
            blocks: Vec::new(),
            spaces: (0..spaces).map(|_| Space::default()).collect(),
            slots: (0..slots).map(|_| vec![Bytes::default(); 512]).collect(),
            pending: Vec::new(),
            data: Vec::new(),
            ids: 0,
            clock: 0,
            progress: 0,
            pool: Pool::new(sets_of(seed)),
            attached: true,
            suspends: false,
            closed: false,
            workers: 0,
            tier: Tier::default(),
            owners: (1..=spaces as u64)
                .map(|key| tier::Owner::new(key, key as u32))
                .collect(),
            queued: Vec::new(),
            fetching: Vec::new(),
            askers: 0,
            quota,
            wrong: None,
        };
        let mut state = state;
        for owner in 0..spaces {
            state.with_tier(|tier, live| tier.add_owner(live, owner));
        }
        Self {
            shared: Exploration::new(state, seed),
            lack,
            fails: Cell::new(usize::MAX),
            unsure: Cell::new(usize::MAX),
            lapses: Cell::new(usize::MAX),
            bad: Cell::new(None),
            arbiter: Arbiter::new(),
        }
    }

    pub(super) fn lacks(&self, what: Lack) -> bool {
        self.lack == Some(what) || what == Lack::MapEndsSpill && !self.maps_silently()
    }

    /// Whether threads run that make and end mappings, and say no more of it than the mapping itself does.
    pub(super) fn maps_silently(&self) -> bool {
        !self.lack.is_some_and(Lack::is_second)
    }

    pub(super) fn try_lock_block(&self, b: usize) -> bool {
        let block = &mut self.now().blocks[b];
        !core::mem::replace(&mut block.locked, true)
    }

    pub(super) async fn lock_block(&self, b: usize) {
        self.until(|s| {
            let block = &mut s.blocks[b];
            let free = !block.locked;
            block.locked = true;
            free.then_some(())
        })
        .await;
    }

    pub(super) fn unlock_block(&self, b: usize) {
        let ends = self.chance(8);
        let block = &mut self.now().blocks[b];
        block.locked = false;
        if ends {
            block.wait_gpus();
        }
    }

    pub(super) async fn read_lock(&self, space: usize) {
        self.until(|s| s.spaces[space].lock.try_read().then_some(()))
            .await;
    }

    pub(super) fn try_read_lock(&self, space: usize) -> bool {
        self.now().spaces[space].lock.try_read()
    }

    pub(super) fn read_unlock(&self, space: usize) {
        self.now().spaces[space].lock.read_unlock();
    }

    /// Who has only tried the VA space's lock lets it go: nothing else keeps the VA space, and the lock
    /// can be had by others before this thread has left it (S-end).
    pub(super) async fn end_try(&self, space: usize) {
        self.read_unlock(space);
        self.pause().await;
        self.has_left(space);
    }

    pub(super) fn has_left(&self, space: usize) {
        let s = &mut *self.now();
        if s.spaces[space].freed {
            s.blame(format!(
                "S-end: a lock of VA space {space} is let go that is freed"
            ));
        }
    }

    pub(super) async fn write_lock(&self, space: usize) {
        self.now().spaces[space].lock.wait_to_write();
        self.until(|s| s.spaces[space].lock.write_in_turn().then_some(()))
            .await;
    }

    pub(super) fn write_unlock(&self, space: usize) {
        self.now().spaces[space].lock.write_unlock();
    }

    /// Takes what a read is made with, in line.
    pub(super) async fn take_set(&self, who: Who) {
        let asked = self.now().pool.ask(who);
        if let Err(place) = asked {
            self.until(|s| s.pool.claim(&place)).await;
        }
    }

    pub(super) fn give_set(&self, who: Who) {
        let s = &mut *self.now();
        s.progress += u32::from(s.pool.give_back(who, Buffers));
    }

    /// transfer() to the device.
    pub(super) async fn write(&self, at: Place, data: Vec<Bytes>) {
        let slow = self.chance(4);
        let id = self.now().submit(at, data, None, slow);
        let _ = self.until(|s| s.take_if_done(id)).await;
    }

    /// transfer() from the device.
    pub(super) async fn read(&self, at: Place, pages: u16, to: To) -> Vec<Bytes> {
        let nothing = vec![Bytes::default(); usize::from(pages)];
        let slow = self.chance(4);
        let id = self.now().submit(at, nothing, Some(to), slow);
        self.until(|s| s.take_if_done(id)).await
    }

    /// Whether the device fails a read, and has what was to be read all the same.
    pub(super) fn lapses(&self) -> bool {
        self.chance(self.lapses.get())
    }

    /// Some of what was read may have been changed on the way, where that is noticed.
    pub(super) fn garble(&self, at: Place, bytes: &mut [Bytes]) {
        if self.lapses() && self.now().table.sum(at).is_some() && !bytes.is_empty() {
            let k = self.below(bytes.len());
            bytes[k].value ^= 1 << 31;
        }
    }

    /// The time of reads that fail, in microseconds. Between two steps of a thread there is a millisecond.
    pub(super) fn now_us(&self) -> u64 {
        self.steps.get() * 1_000
    }

    /// Whether what was read is what the checksum and the stamp say.
    pub(super) fn sums_match(&self, piece: &Piece, read: &[Bytes]) -> bool {
        let stamps = (piece.stamp..).zip(read);
        let wrong = stamps.filter(|(stamp, bytes)| bytes.stamp != *stamp);
        wrong.count() == 0 && self.may_be_copied(piece.place, read)
    }

    /// Whether what was read has the sums that are known of it. Without sums nobody sees that it is something else:
    /// who copies it does not decrypt it.
    pub(super) fn may_be_copied(&self, from: Place, read: &[Bytes]) -> bool {
        let s = self.now();
        let mut pages = read.iter().zip(0..);
        pages.all(|(bytes, k)| s.has_its_sum(from, k, bytes))
    }
}

/// What a read is made with, of which there is nothing to see here.
pub(super) struct Buffers;

/// As few sets as there may be, or some more.
fn sets_of(seed: u64) -> TryVec<Buffers> {
    let mut sets = TryVec::new();
    let count = LEAST + [0, 0, 2, 6][(seed / 8 % 4) as usize];
    (0..count).for_each(|_| sets.push(Buffers).unwrap());
    sets
}

/// What stands for a checksum.
pub(super) fn sum_of(bytes: &Bytes) -> u32 {
    (bytes.stamp as u32).wrapping_mul(0x9e37_79b1) ^ bytes.value
}

/// So that both enums read alike where they are listed.
impl From<Part> for Lack {
    fn from(part: Part) -> Self {
        Self::Policy(part)
    }
}
