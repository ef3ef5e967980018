// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who uses the tier: the tenants, called owners here, and their va_blocks; whose pages are spilled
//! next, who waits for room, and whose reads come first.
//!
//! The tenant that has most host memory is spilled, its blocks that have been there longest first, so
//! that none that has less than its equal share is spilled for another's sake, or waits for room.
//!
//! ```text
//!  Tier ── owners ──▶ Owner ── queue ───▶ blocks that may have something to spill
//!    │                  ├───── copies ──▶ blocks of which flash may have copies
//!    │                  └───── asking ──▶ blocks of which GPU faults want something, those of which calls do, and
//!    │                                    those of which prefetches do
//!    └──── all blocks
//! ```
//!
//! The records of blocks and of owners lie in memory of their own, which [`Records`] finds: nothing is
//! allocated here, and each operation takes a time that the number of blocks has no part in. What each fault asks
//! takes a time that the number of owners has no part in either: only those who spill, or give up copies, look at all owners.
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

/// Blocks of one owner that are read for GPU faults at the same time.
pub const FETCHERS_EACH: u32 = 8;

/// Blocks of one owner that are read at the same time as a call will need them.
pub const READERS_EACH: u32 = 4;

/// Blocks of one owner that are read at the same time for prefetches: as many as a prefetcher copies.
pub const PREFETCHERS_EACH: u32 = 2;

/// Those who read for an owner: first the fetchers, for faults; then the readers, for calls; then those who read for
/// prefetches. So no fault waits behind what is wanted later, and no call behind a guess.
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
    /// The name of an owner, who pays for pages.
    type Owner: Copy + PartialEq;

    /// The record of a block.
    fn block(&mut self, of: Self::Block) -> &mut Block<Self::Block, Self::Owner>;

    /// The record of an owner.
    fn owner(&mut self, of: Self::Owner) -> &mut Owner<Self::Block, Self::Owner>;

    /// Keeps the va_block, so that it is there when the lock is let go; false if its last reference is
    /// going at this moment.
    fn hold(&mut self, of: Self::Block) -> bool;
}

/// What is known of a va_block.
#[derive(Debug)]
pub struct Block<B, O> {
    owner: O,
    /// Pages of host memory that it was last counted with.
    host_pages: u32,
    /// The detaching that has seen it.
    seen: u32,
    /// When its copies were noted, by [`Tier::copies_noted`].
    copied: u64,
    all: Links<B>,
    queue: Links<B>,
    copies: Links<B>,
    asking: Links<B>,
    /// Which list of its owner's that is in, while it is in one.
    asks: Asks,
}

impl<B, O> Block<B, O> {
    /// Of this owner, and without host memory.
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

/// What is known of a tenant.
#[derive(Debug)]
pub struct Owner<B, O> {
    /// A number that no other owner ever gets; not 0.
    key: u64,
    /// The user that it is, maybe one of several tenants.
    user: u32,
    host_pages: u64,
    /// Blocks that may have something to spill, longest in host memory first.
    queue: List<B>,
    queue_length: u32,
    /// Looks at its blocks since one of them was spilled.
    vain: u32,
    /// Blocks of which flash may have copies, the oldest first.
    copies: List<B>,
    /// Blocks of which something was asked for, by faults, by calls and by prefetches, the first first.
    for_faults: List<B>,
    for_calls: List<B>,
    for_prefetches: List<B>,
    /// A bit for each reader, by its number: the reader is queued or at work, and looks at what is asked for before it
    /// ends.
    awake: u32,
    /// When what it wrote by call has been paid for.
    paid: Ns,
    all: Links<O>,
}

impl<B, O> Owner<B, O> {
    /// Without blocks, of this user. `key`: a number that no other owner ever gets.
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

/// The device that is attached, and what the workers do with it.
#[derive(Debug)]
struct Attached<D> {
    device: D,
    pressure: Pressure,
    /// How many spill to it.
    workers: u32,
}

/// What a worker does after a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// It ends, and those are told who wait for room.
    pub stops: bool,
    /// Somebody has to look again after so many milliseconds.
    pub again: Option<u64>,
}

/// The tier. `B`, `O` and `D` name blocks, owners and devices.
#[derive(Debug)]
pub struct Tier<B, O, D> {
    owners: List<O>,
    all: List<B>,
    /// Blocks in the queues of all owners.
    queue_length: u32,
    host_pages: u64,
    host_peak: u64,
    /// Owners that have host memory.
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

    /// An owner is there.
    pub fn add_owner<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, owner: O) {
        self.owners.push(owner, records, all_owners);
        let owner = records.owner(owner);
        owner.paid = self.debts.of(owner.user);
    }

    /// An owner writes nothing any more, and will be gone. Its user goes on paying: this comes before the user can
    /// have another owner in its place, which is added with what is left to pay.
    pub fn owner_leaves<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, owner: O) {
        let owner = records.owner(owner);
        self.debts.keep(owner.user, owner.paid);
    }

    /// An owner is gone, all of whose blocks are.
    pub fn remove_owner<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, owner: O) {
        self.owners.remove(owner, records, all_owners);
    }

    /// A block is known from now on. One that `has_pages` on a device is the upper half of another, and
    /// comes first: a detaching that has seen its lower half has not seen it, and those that it has seen
    /// are at the end.
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

    /// A block is gone, and its host memory with it.
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

    /// A block has `pages` pages of host memory now; `used`: some have just come there, so it is the last
    /// of its owner's to be spilled.
    pub fn note<R>(&mut self, records: &mut R, block: B, pages: u32, used: bool)
    where
        R: Records<Block = B, Owner = O>,
    {
        self.count(records, block, pages);
        if used && pages > 0 {
            self.enqueue(records, block);
        }
    }

    /// Counts a block's host memory anew (T-count).
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

    /// Pages of host memory that all have, and the most since the device was attached.
    pub fn host(&self) -> (u64, u64) {
        (self.host_pages, self.host_peak)
    }

    /// What an owner has of host memory, and how many have any, itself among them.
    fn mine<R: Records<Block = B, Owner = O>>(&self, records: &mut R, owner: O) -> (u64, u64) {
        let mine = records.owner(owner).host_pages;
        (mine, self.have_some.saturating_add(u64::from(mine == 0)))
    }

    /// Whether too much host memory is in use, the owner has its share of it, and waiting may help. Who
    /// has less than its share does not wait for others.
    pub fn must_wait<R: Records<Block = B, Owner = O>>(&self, records: &mut R, owner: O) -> bool {
        self.attached.as_ref().is_some_and(|attached| {
            let (mine, owners) = self.mine(records, owner);
            attached.pressure.must_wait(self.host_pages, mine, owners)
        })
    }

    /// Whether too much host memory is in use, so that somebody may wait for what is spilled.
    pub fn is_short(&self) -> bool {
        let attached = self.attached.as_ref();
        attached.is_some_and(|attached| attached.pressure.is_short(self.host_pages))
    }

    /// Whether who reads for `asks` leaves host memory to others. A prefetch, which is a guess, does so from the low mark
    /// on: workers would spill for it what is in use.
    pub fn lacks_room<R>(&self, records: &mut R, owner: O, asks: Asks) -> bool
    where
        R: Records<Block = B, Owner = O>,
    {
        let attached = self.attached.as_ref();
        let is_spilled = || attached.is_some_and(|a| a.pressure.is_above_low(self.host_pages));
        asks == Asks::Prefetch && is_spilled() || self.must_wait(records, owner)
    }

    // The queues of what may be spilled.

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

    /// A block has nothing to spill; what comes to it queues it again.
    pub fn dequeue<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, block: B) {
        let owner = records.block(block).owner;
        let mut list = records.owner(owner).queue;
        if list.remove(block, records, queue) {
            let owner = records.owner(owner);
            owner.queue = list;
            owner.queue_length = owner.queue_length.saturating_sub(1);
            // It was not in vain that it was looked at: there is one less.
            owner.vain = owner.vain.saturating_sub(1);
            self.queue_length = self.queue_length.saturating_sub(1);
        }
    }

    /// The owner whose block is to be spilled next: the one that has most, if it may be spilled.
    fn next_owner<R: Records<Block = B, Owner = O>>(&self, records: &mut R) -> Option<O> {
        let mut most: Option<(O, u64)> = None;
        let mut next = self.owners.first();
        while let Some(owner) = next {
            let record = records.owner(owner);
            // All of its blocks were looked at, and none could go: others have to.
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

    /// The block to be spilled next, kept for the caller; the last of its owner's to be looked at from
    /// now on. `None` also where it is just going.
    pub fn victim<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R) -> Option<B> {
        let owner = self.next_owner(records)?;
        let record = records.owner(owner);
        record.vain = record.vain.saturating_add(1);
        let block = record.queue.first()?;
        self.enqueue(records, block);
        records.hold(block).then_some(block)
    }

    /// A block was spilled: looks at others of its owner's are no longer in vain.
    pub fn hope<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R, block: B) {
        let owner = records.block(block).owner;
        records.owner(owner).vain = 0;
    }

    /// The next time, all blocks of all owners are looked at.
    pub fn hope_for_all<R: Records<Block = B, Owner = O>>(&mut self, records: &mut R) {
        let mut next = self.owners.first();
        while let Some(owner) = next {
            let record = records.owner(owner);
            record.vain = 0;
            next = record.all.next();
        }
    }

    // The device and its workers.

    /// A device is there, for `workers`. With more than `limit` pages in host memory there is too little.
    pub fn attach(&mut self, device: D, limit: u64, workers: u32) {
        self.host_peak = self.host_pages;
        self.attached = Some(Attached {
            device,
            pressure: Pressure::new(limit),
            workers,
        });
    }

    /// It is not from now on: nobody is woken for it, or waits.
    pub fn detach(&mut self) {
        self.attached = None;
    }

    /// The device that is attached, if one is.
    pub fn device(&self) -> Option<D> {
        self.attached.as_ref().map(|attached| attached.device)
    }

    /// How many spill to the attached device.
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

    /// Whether there is something to do for `device`'s workers.
    pub fn goes_on(&self, device: D, now: u64) -> bool {
        let goes_on =
            |a: &Attached<D>| a.device == device && a.pressure.goes_on(self.host_pages, now);
        self.attached.as_ref().is_some_and(goes_on)
    }

    /// A try of one of `device`'s workers ended so.
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

    /// A detaching begins; its number.
    pub fn detaching(&mut self) -> u32 {
        self.detachings = self.detachings.wrapping_add(1);
        self.detachings
    }

    /// A block that the `detaching` with this number has not seen yet, kept for the caller. Those that
    /// were seen are at the end.
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

    /// Flash may have copies of some of the block's pages.
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
    /// anybody, kept for the caller; it is taken not to have any from now on.
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

    /// Something is asked for of the block, about which nobody was told, or not that it is as urgent. Returns
    /// the number of who reads for its owner and has to be woken.
    ///
    /// Where all are awake, one of them will find it. To wake one that is at work would count as one
    /// more that is: an owner whose reads do not end would take the turns of others as well.
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

    /// The block is in no list of what was asked for; whether it was in one.
    fn stop_asking<R: Records<Block = B, Owner = O>>(records: &mut R, block: B) -> bool {
        let (asks, owner) = (records.block(block).asks, records.block(block).owner);
        let mut list = *records.owner(owner).asking(asks);
        let was = list.remove(block, records, asking);
        *records.owner(owner).asking(asks) = list;
        was
    }

    /// The owner's block that asked first of those that this one reads, kept for the caller.
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

    /// One who reads for the owner has done what it found. Returns whether it stays awake, as there is
    /// more, also what was asked for meanwhile.
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

    /// An owner has written `bytes` by call, at `mib` MiB a second, 0 for any.
    pub fn wrote<R>(&mut self, records: &mut R, owner: O, now: Ns, bytes: u64, mib: u32)
    where
        R: Records<Block = B, Owner = O>,
    {
        let owner = records.owner(owner);
        owner.paid = pace::paid_after(owner.paid, now, bytes, mib);
    }
}
