// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The users of the tier: the tenants, called owners here, and their va_blocks. Chooses whose pages
//! are spilled next, who waits for room, and whose reads come first.
//!
//! The tenant with most host memory is spilled, its blocks that have been there longest first. So
//! no tenant with less than its equal share is spilled for another's sake, or waits for room.
//!
//! ```text
//!  Tier ── owners ──▶ Owner ── queue ───▶ blocks that may have something to spill
//!    │                  ├───── copies ──▶ blocks of which flash may have copies
//!    │                  └───── asking ──▶ blocks of which GPU faults want something, those of which calls do, and
//!    │                                    those of which prefetches do
//!    └──── all blocks
//! ```
//!
//! The records of blocks and of owners lie in memory of their own, which [`Records`] finds. So nothing is
//! allocated here, and no operation takes longer with more blocks. Nor do the operations of a fault take
//! longer with more owners: only spills and giving up copies look at all owners.
//!
//! Locking: the caller's, one call at a time; it may be a spinlock.
//!
//! # Invariants
//!
//! - **T-count**: the host memory of the tier is the sum of its owners', and that of an owner the sum of
//!   its blocks'. `have_some` owners have any.
//! - **T-gone**: a block that was removed, and an owner, is in no list.

use super::list::{Links, List};
use super::pace::{self, Debts, Ns};
use super::pressure::{Next, Pressure, Tried};
use super::wants::Asks;

/// How many blocks of one owner are read for GPU faults at the same time.
pub const FETCHERS_EACH: u32 = 8;

/// How many blocks of one owner are read at the same time because a call will need them.
pub const READERS_EACH: u32 = 4;

/// How many blocks of one owner are read for prefetches at the same time: as many as a prefetcher copies.
pub const PREFETCHERS_EACH: u32 = 2;

/// How many readers an owner has: first those for faults, then those for calls, then those for prefetches. So no
/// fault waits behind pages that are wanted later, and no call behind a guess.
pub const ALL_EACH: u32 = FETCHERS_EACH + READERS_EACH + PREFETCHERS_EACH;

/// Whether the reader with this number reads for faults, for calls or for prefetches.
pub fn reads_for(number: u32) -> Asks {
    const CALLS: u32 = FETCHERS_EACH + READERS_EACH;
    match number {
        ..FETCHERS_EACH => Asks::Fault,
        FETCHERS_EACH..CALLS => Asks::Call,
        CALLS.. => Asks::Prefetch,
    }
}

/// The memory that holds the records of blocks and owners, and finds each by its name.
pub trait Records: Sized {
    /// The name of a va_block.
    type Block: Copy;
    /// The name of an owner, which pays for pages.
    type Owner: Copy + PartialEq;

    /// The record of a block.
    fn block(&mut self, of: Self::Block) -> &mut Block<Self::Block, Self::Owner>;

    /// The record of an owner.
    fn owner(&mut self, of: Self::Owner) -> &mut Owner<Self::Block, Self::Owner>;

    /// Takes a reference on the va_block, which keeps it after the lock is released; false if its
    /// last reference is just going.
    fn hold(&mut self, of: Self::Block) -> bool;
}

/// The tier's record of a va_block.
#[derive(Debug)]
pub struct Block<B, O> {
    owner: O,
    /// How many pages of host memory it had when it was last counted.
    host_pages: u32,
    /// The number of the last detaching that has seen it.
    seen: u32,
    /// When its copies were noted, by [`Tier::copies_noted`].
    copied: u64,
    all: Links<B>,
    queue: Links<B>,
    copies: Links<B>,
    asking: Links<B>,
    /// Which of its owner's lists of asking blocks it is in, while it is in one.
    asks: Asks,
}

impl<B, O> Block<B, O> {
    /// The record of a block of this owner, without host memory.
    pub fn new(owner: O) -> Self {
        Self {
            owner,
            host_pages: 0,
            seen: 0,
            copied: 0,
            all: Links::default(),
            queue: Links::default(),
            copies: Links::default(),
            asking: Links::default(),
            asks: Asks::Prefetch,
        }
    }
}

/// The tier's record of a tenant.
#[derive(Debug)]
pub struct Owner<B, O> {
    /// A number that no other owner ever gets; not 0.
    key: u64,
    /// The user, which may have several tenants.
    user: u32,
    host_pages: u64,
    /// Blocks that may have something to spill; those longest in host memory first.
    queue: List<B>,
    queue_length: u32,
    /// How many of its blocks were looked at in vain since one was spilled.
    vain: u32,
    /// Blocks of which flash may have copies, the oldest first.
    copies: List<B>,
    /// Blocks of which faults asked for pages, the first to ask first; then the same of calls and of prefetches.
    for_faults: List<B>,
    for_calls: List<B>,
    for_prefetches: List<B>,
    /// A bit for each reader, by its number, while it is queued or at work: it will look at what is asked for before
    /// it ends.
    awake: u32,
    /// When its writes by call will have been paid for.
    paid: Ns,
    all: Links<O>,
}

impl<B, O> Owner<B, O> {
    /// The record of an owner of this user, without blocks. `key` is a number that no other owner ever gets.
    pub fn new(key: u64, user: u32) -> Self {
        Self {
            key,
            user,
            host_pages: 0,
            queue: List::default(),
            queue_length: 0,
            vain: 0,
            copies: List::default(),
            for_faults: List::default(),
            for_calls: List::default(),
            for_prefetches: List::default(),
            awake: 0,
            paid: Ns::default(),
            all: Links::default(),
        }
    }
}

impl<B: Copy, O> Owner<B, O> {
    fn asking(&mut self, asks: Asks) -> &mut List<B> {
        match asks {
            Asks::Fault => &mut self.for_faults,
            Asks::Call => &mut self.for_calls,
            Asks::Prefetch => &mut self.for_prefetches,
        }
    }
}

/// The attached device, and the state of its workers.
#[derive(Debug)]
struct Attached<D> {
    device: D,
    pressure: Pressure,
    /// How many workers spill to it.
    workers: u32,
}

/// What a worker does after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether it ends; then the threads that wait for room are woken.
    pub stops: bool,
    /// After how many milliseconds a worker has to look again, if at all.
    pub again: Option<u64>,
}

/// The tier. `B`, `O` and `D` name blocks, owners and devices.
#[derive(Debug)]
pub struct Tier<B, O, D> {
    owners: List<O>,
    all: List<B>,
    /// How many blocks the queues of all owners hold.
    queue_length: u32,
    host_pages: u64,
    host_peak: u64,
    /// How many owners have host memory.
    have_some: u64,
    copies_noted: u64,
    detachings: u32,
    /// The time that users still owe for bytes written by owners that are gone.
    debts: Debts,
    attached: Option<Attached<D>>,
}

impl<B, O, D> Default for Tier<B, O, D> {
    fn default() -> Self {
        Self {
            owners: List::default(),
            all: List::default(),
            queue_length: 0,
            host_pages: 0,
            host_peak: 0,
            have_some: 0,
            copies_noted: 0,
            detachings: 0,
            debts: Debts::default(),
            attached: None,
        }
    }
}

fn all_owners<R: Records>(records: &mut R, of: R::Owner) -> &mut Links<R::Owner> {
    &mut records.owner(of).all
}

fn all<R: Records>(records: &mut R, of: R::Block) -> &mut Links<R::Block> {
    &mut records.block(of).all
}

fn queue<R: Records>(records: &mut R, of: R::Block) -> &mut Links<R::Block> {
    &mut records.block(of).queue
}

fn copies<R: Records>(records: &mut R, of: R::Block) -> &mut Links<R::Block> {
    &mut records.block(of).copies
}

fn asking<R: Records>(records: &mut R, of: R::Block) -> &mut Links<R::Block> {
    &mut records.block(of).asking
}

impl<B: Copy, O: Copy + PartialEq, D: Copy + PartialEq> Tier<B, O, D> {
    // Owners and blocks come and go.

    /// Adds an owner, with the debt that its user has left.
    pub fn add_owner<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, owner: O) {
        self.owners.push(owner, records, all_owners);
        let owner = records.owner(owner);
        owner.paid = self.debts.of(owner.user);
    }

    /// Notes that an owner writes nothing any more, and will be gone. Its user goes on paying: this is called before
    /// the user can have another owner in its place, which is added with the debt that is left.
    pub fn owner_leaves<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, owner: O) {
        let owner = records.owner(owner);
        self.debts.keep(owner.user, owner.paid);
    }

    /// Removes an owner, all of whose blocks are gone.
    pub fn remove_owner<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, owner: O) {
        self.owners.remove(owner, records, all_owners);
    }

    /// Adds a block. One that `has_pages` on a device is the upper half of another, and comes first
    /// in the list: a detaching may have seen the lower half, and the blocks that it has seen are
    /// at the end.
    pub fn add_block<R>(&mut self, records: &mut R, block: B, has_pages: bool)
    where
        R: Records<Block = B, Owner = O>,
    {
        if has_pages {
            self.all.push_first(block, records, all);
        } else {
            self.all.push(block, records, all);
        }
    }

    /// Removes a block, and its host memory from the counts.
    pub fn remove_block<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, block: B) {
        self.dequeue(records, block);
        self.all.remove(block, records, all);
        let owner = records.block(block).owner;
        let mut list = records.owner(owner).copies;
        list.remove(block, records, copies);
        records.owner(owner).copies = list;
        Self::stop_asking(records, block);
        self.count(records, block, 0);
    }

    // Host memory.

    /// Notes that a block has `pages` pages of host memory now; `used`: some have just come there,
    /// so it is the last of its owner's to be spilled.
    pub fn note<R>(&mut self, records: &mut R, block: B, pages: u32, used: bool)
    where
        R: Records<Block = B, Owner = O>,
    {
        self.count(records, block, pages);
        if used && pages > 0 {
            self.enqueue(records, block);
        }
    }

    /// Counts a block's host memory again (T-count).
    fn count<R>(&mut self, records: &mut R, block: B, pages: u32)
    where
        R: Records<Block = B, Owner = O>,
    {
        let record = records.block(block);
        let before = u64::from(core::mem::replace(&mut record.host_pages, pages));
        let owner = record.owner;
        let change = |of: u64| of.saturating_sub(before).saturating_add(u64::from(pages));
        let owner = records.owner(owner);
        let had_some = owner.host_pages > 0;
        owner.host_pages = change(owner.host_pages);
        self.have_some = self
            .have_some
            .saturating_add(u64::from(!had_some && owner.host_pages > 0))
            .saturating_sub(u64::from(had_some && owner.host_pages == 0));
        self.host_pages = change(self.host_pages);
        self.host_peak = self.host_peak.max(self.host_pages);
    }

    /// How many pages of host memory all blocks have, and the most since the device was attached.
    pub fn host(&self) -> (u64, u64) {
        (self.host_pages, self.host_peak)
    }

    /// How many pages of host memory an owner has, and how many owners have any, counting it.
    fn mine<R: Records<Block = B, Owner = O>>(&self, records: &mut R, owner: O) -> (u64, u64) {
        let mine = records.owner(owner).host_pages;
        (mine, self.have_some.saturating_add(u64::from(mine == 0)))
    }

    /// Whether the owner must wait: too much host memory is in use, the owner has its share of it,
    /// and waiting may help. An owner with less than its share does not wait for others.
    pub fn must_wait<R: Records<Block = B, Owner = O>>(&self, records: &mut R, owner: O) -> bool {
        self.attached.as_ref().is_some_and(|attached| {
            let (mine, owners) = self.mine(records, owner);
            attached.pressure.must_wait(self.host_pages, mine, owners)
        })
    }

    /// Whether too much host memory is in use, so that threads may wait for spills.
    pub fn is_short(&self) -> bool {
        let attached = self.attached.as_ref();
        attached.is_some_and(|attached| attached.pressure.is_short(self.host_pages))
    }

    /// Whether a reader for `asks` must leave host memory to others. A prefetch, which is a guess, must do so from
    /// the low mark on: otherwise workers would spill pages in use for it.
    pub fn lacks_room<R>(&self, records: &mut R, owner: O, asks: Asks) -> bool
    where
        R: Records<Block = B, Owner = O>,
    {
        let attached = self.attached.as_ref();
        let is_spilled = || attached.is_some_and(|a| a.pressure.is_above_low(self.host_pages));
        asks == Asks::Prefetch && is_spilled() || self.must_wait(records, owner)
    }

    // The queues of blocks that may be spilled.

    fn enqueue<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, block: B) {
        let owner = records.block(block).owner;
        let mut list = records.owner(owner).queue;
        let was = list.remove(block, records, queue);
        list.push(block, records, queue);
        let owner = records.owner(owner);
        owner.queue = list;
        if !was {
            owner.queue_length = owner.queue_length.saturating_add(1);
            self.queue_length = self.queue_length.saturating_add(1);
        }
    }

    /// Takes a block out of its queue, as it has nothing to spill. Pages that come to it queue it again.
    pub fn dequeue<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, block: B) {
        let owner = records.block(block).owner;
        let mut list = records.owner(owner).queue;
        if list.remove(block, records, queue) {
            let owner = records.owner(owner);
            owner.queue = list;
            owner.queue_length = owner.queue_length.saturating_sub(1);
            // The look at it was not in vain: the queue has one block less.
            owner.vain = owner.vain.saturating_sub(1);
            self.queue_length = self.queue_length.saturating_sub(1);
        }
    }

    /// The owner whose block is spilled next: the one with most host memory, if it may be spilled.
    fn next_owner<R: Records<Block = B, Owner = O>>(&self, records: &mut R) -> Option<O> {
        let mut most: Option<(O, u64)> = None;
        let mut next = self.owners.first();
        while let Some(owner) = next {
            let record = records.owner(owner);
            // If all of its blocks were looked at and none could go, other owners have to spill.
            let has_some = record.vain <= record.queue_length && record.queue.first().is_some();
            if has_some && most.is_none_or(|(_, pages)| record.host_pages > pages) {
                most = Some((owner, record.host_pages));
            }
            next = record.all.next();
        }
        let (owner, _) = most?;
        let (mine, owners) = self.mine(records, owner);
        let attached = self.attached.as_ref()?;
        attached.pressure.may_spill(mine, owners).then_some(owner)
    }

    /// The block to be spilled next, with a reference for the caller. It becomes the last in its
    /// owner's queue. `None` also if the block is just going.
    pub fn victim<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R) -> Option<B> {
        let owner = self.next_owner(records)?;
        let record = records.owner(owner);
        record.vain = record.vain.saturating_add(1);
        let block = record.queue.first()?;
        self.enqueue(records, block);
        records.hold(block).then_some(block)
    }

    /// Notes that a block was spilled, so that looks at its owner's other blocks were not in vain.
    pub fn hope<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, block: B) {
        let owner = records.block(block).owner;
        records.owner(owner).vain = 0;
    }

    /// Has the next search look at all blocks of all owners again.
    pub fn hope_for_all<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R) {
        let mut next = self.owners.first();
        while let Some(owner) = next {
            let record = records.owner(owner);
            record.vain = 0;
            next = record.all.next();
        }
    }

    // The device and its workers.

    /// Attaches a device with `workers` workers. More than `limit` pages of host memory are too many from now on.
    pub fn attach(&mut self, device: D, limit: u64, workers: u32) {
        self.host_peak = self.host_pages;
        self.attached = Some(Attached {
            device,
            pressure: Pressure::new(limit),
            workers,
        });
    }

    /// Detaches the device: from now on nobody is woken for it, or waits.
    pub fn detach(&mut self) {
        self.attached = None;
    }

    /// The device that is attached, if one is.
    pub fn device(&self) -> Option<D> {
        self.attached.as_ref().map(|attached| attached.device)
    }

    /// How many workers spill to the attached device.
    pub fn workers(&self) -> u32 {
        self.attached
            .as_ref()
            .map_or(0, |attached| attached.workers)
    }

    /// How many of the device's workers to wake.
    pub fn wakes(&self, now: u64) -> u32 {
        let wakes = |a: &Attached<D>| a.pressure.wakes(self.host_pages, a.workers, now);
        self.attached.as_ref().map_or(0, wakes)
    }

    /// Whether `device`'s workers have something to do.
    pub fn goes_on(&self, device: D, now: u64) -> bool {
        let goes_on =
            |a: &Attached<D>| a.device == device && a.pressure.goes_on(self.host_pages, now);
        self.attached.as_ref().is_some_and(goes_on)
    }

    /// Notes how a try of one of `device`'s workers ended, and says what it does next.
    pub fn ended(&mut self, device: D, tried: Tried, now: u64) -> Ended {
        let (stops, again) = match self.attached.as_mut().filter(|a| a.device == device) {
            None => (true, None),
            Some(a) => match a.pressure.ended(tried, self.queue_length, a.workers, now) {
                Next::GoOn => (false, None),
                Next::Stall(again) => (true, again),
            },
        };
        Ended { stops, again }
    }

    /// Begins a detaching. Returns its number.
    pub fn detaching(&mut self) -> u32 {
        self.detachings = self.detachings.wrapping_add(1);
        self.detachings
    }

    /// A block that the detaching with this number has not seen yet, with a reference for the
    /// caller. Blocks that were seen are at the end of the list.
    pub fn unseen<R>(&mut self, records: &mut R, detaching: u32) -> Option<B>
    where
        R: Records<Block = B, Owner = O>,
    {
        loop {
            let block = self.all.first()?;
            let record = records.block(block);
            if record.seen == detaching {
                return None;
            }
            record.seen = detaching;
            self.all.remove(block, records, all);
            self.all.push(block, records, all);
            if records.hold(block) {
                return Some(block);
            }
        }
    }

    // Copies.

    /// Notes that flash may have copies of some of the block's pages.
    pub fn note_copies<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, block: B) {
        let record = records.block(block);
        if record.copies.is_linked() {
            return;
        }
        self.copies_noted = self.copies_noted.wrapping_add(1);
        record.copied = self.copies_noted;
        let owner = record.owner;
        let mut list = records.owner(owner).copies;
        list.push(block, records, copies);
        records.owner(owner).copies = list;
    }

    /// The block that has had copies longest, of the owner with the key `of` or, with `None`, of
    /// any, with a reference for the caller. To the tier it has no copies from now on.
    pub fn oldest_copies<R>(&mut self, records: &mut R, of: Option<u64>) -> Option<B>
    where
        R: Records<Block = B, Owner = O>,
    {
        loop {
            let owner = self.owner_of_oldest_copies(records, of)?;
            let mut list = records.owner(owner).copies;
            let block = list.first()?;
            list.remove(block, records, copies);
            records.owner(owner).copies = list;
            if records.hold(block) {
                return Some(block);
            }
        }
    }

    fn owner_of_oldest_copies<R>(&self, records: &mut R, of: Option<u64>) -> Option<O>
    where
        R: Records<Block = B, Owner = O>,
    {
        let mut oldest: Option<(O, u64)> = None;
        let mut next = self.owners.first();
        while let Some(owner) = next {
            let record = records.owner(owner);
            next = record.all.next();
            let is_meant = of.is_none_or(|key| key == record.key);
            let Some(first) = record.copies.first().filter(|_| is_meant) else {
                continue;
            };
            let copied = records.block(first).copied;
            if oldest.is_none_or(|(_, before)| copied < before) {
                oldest = Some((owner, copied));
            }
        }
        oldest.map(|(owner, _)| owner)
    }

    // Reads for GPU faults, for calls and for prefetches.

    /// Notes that pages of the block are asked for, of which no reader knows, or not that they are
    /// as urgent. Returns the number of the owner's reader that has to be woken, if one has to be.
    ///
    /// If all readers are awake, one of them will find the block. Waking a reader that is at work
    /// would count it twice, so an owner whose reads do not end would take other owners' turns.
    pub fn ask<R>(&mut self, records: &mut R, block: B, asks: Asks) -> Option<u32>
    where
        R: Records<Block = B, Owner = O>,
    {
        Self::stop_asking(records, block);
        records.block(block).asks = asks;
        let owner = records.block(block).owner;
        let mut list = *records.owner(owner).asking(asks);
        list.push(block, records, asking);
        let owner = records.owner(owner);
        *owner.asking(asks) = list;
        let asleep = |n: &u32| reads_for(*n) == asks && owner.awake & (1 << *n) == 0;
        let woken = (0..ALL_EACH).find(asleep)?;
        owner.awake |= 1 << woken;
        Some(woken)
    }

    /// Takes the block out of its owner's list of asking blocks. Returns whether it was in one.
    fn stop_asking<R: Records<Block = B, Owner = O>>(records: &mut R, block: B) -> bool {
        let (asks, owner) = (records.block(block).asks, records.block(block).owner);
        let mut list = *records.owner(owner).asking(asks);
        let was = list.remove(block, records, asking);
        *records.owner(owner).asking(asks) = list;
        was
    }

    /// Of the owner's blocks that this reader reads, the one that asked first, with a reference for the caller.
    pub fn next_asking<R>(&mut self, records: &mut R, owner: O, number: u32) -> Option<B>
    where
        R: Records<Block = B, Owner = O>,
    {
        loop {
            let block = records.owner(owner).asking(reads_for(number)).first()?;
            Self::stop_asking(records, block);
            if records.hold(block) {
                return Some(block);
            }
        }
    }

    /// Notes that a reader of the owner is done with its block. Returns whether it stays awake,
    /// because more is asked for by now.
    pub fn fetched<R: Records<Block = B, Owner = O>>(
        &mut self,
        records: &mut R,
        owner: O,
        number: u32,
    ) -> bool {
        let owner = records.owner(owner);
        let more = owner.asking(reads_for(number)).first().is_some();
        if !more && number < ALL_EACH {
            owner.awake &= !(1 << number);
        }
        more
    }

    // Wear.

    /// Whether an owner may write by call again.
    pub fn may_write<R: Records<Block = B, Owner = O>>(
        &self,
        records: &mut R,
        owner: O,
        now: Ns,
    ) -> bool {
        pace::may_write(records.owner(owner).paid, now)
    }

    /// Counts `bytes` that an owner has written by call, at a rate of `mib` MiB a second; 0: no limit.
    pub fn wrote<R>(&mut self, records: &mut R, owner: O, now: Ns, bytes: u64, mib: u32)
    where
        R: Records<Block = B, Owner = O>,
    {
        let owner = records.owner(owner);
        owner.paid = pace::paid_after(owner.paid, now, bytes, mib);
    }
}
