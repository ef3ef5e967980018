// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A model of the driver below the worker: two VA spaces on a GPU with a few chunks, its fault
//! service, and copies that take their time. Each call of the worker lets others run first.

use super::super::*;
use super::{correlator, FETCHES};
use crate::policy::evict::{self, Queue};
use crate::policy::prefetch::{ExecId, UmBlock};
use crate::testing::{Exploration, SpaceLock};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::format;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::string::String;
use std::task::{Context, Waker};
use std::vec;
use std::vec::Vec;

/// The VA space of the worker, and that of another process.
pub(super) const OURS: usize = 0;
pub(super) const THEIRS: usize = 1;

/// A VA space, as the chunks know it.
pub(super) fn holder(space: usize) -> Holder {
    space as Holder + 7
}

/// Steps of others that no wait of the worker needs.
const TOO_LONG: u32 = 20_000;

/// A va_block of the model: whose it is, and who uses it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) space: usize,
    pub(super) um: u32,
    pub(super) alive: bool,
    pub(super) locked: bool,
    pub(super) hindrances: Hindrances,
    pub(super) pages: Pages,
    /// Pages that are on the SSD, those of them that the worker has asked for, and those that others read.
    pub(super) stored: PageMask,
    pub(super) asked: PageMask,
    pub(super) read: PageMask,
    /// The worker has asked for some, and this was not tried yet, and no fault has brought them. A block that is spilled
    /// again before its reader comes is read once more than is counted.
    pub(super) counts: bool,
    /// The worker is told when a read of it ends.
    pub(super) told: bool,
    /// A read has failed.
    pub(super) failed: bool,
    pub(super) chunk: Option<Chunk>,
}

/// A copy that was begun by the worker.
struct Flight {
    number: u32,
    done: bool,
}

/// What there is but once.
pub(super) struct State {
    pub(super) blocks: Vec<Block>,
    /// The VA spaces' locks.
    pub(super) spaces: [SpaceLock; 2],
    /// How many hold `g_uvm_global.pm.lock` for reading.
    pub(super) pm_readers: u32,
    pub(super) suspended: bool,
    pub(super) stopping: bool,
    pub(super) registered: bool,
    pub(super) roots: RootChunks,
    pub(super) generation: u32,
    /// Which va_block each chunk backs; none for one that is on its way to one.
    pub(super) backs: Vec<Option<usize>>,
    /// Kernels that the process has begun, and the one that each chunk's contents came for by a fault; 0 for none, or
    /// none that these queues were told of.
    begun: u32,
    pub(super) running: u32,
    pub(super) came_for: Vec<u32>,
    pub(super) free: Vec<Chunk>,
    /// The GPU's fault service.
    pub(super) serving: bool,
    pub(super) woken: bool,
    flights: Vec<Flight>,
    /// The va_blocks of which the worker has asked for pages.
    pub(super) reads: Vec<usize>,
    pub(super) wrong: Option<String>,
}

impl Block {
    /// Pages that somebody reads, or is to.
    pub(super) fn coming(&self) -> PageMask {
        self.stored & (self.asked | self.read)
    }
}

impl State {
    pub(super) fn blame(&mut self, what: String) {
        if self.wrong.is_none() {
            self.wrong = Some(what);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let free = |v: evict::Victim| !v.expected && !self.is_running(v.chunk);
        !self.free.is_empty() || self.roots.victim().is_some_and(free)
    }

    /// Whether a fault of the kernel that runs has brought what `chunk` holds.
    fn is_running(&self, chunk: Chunk) -> bool {
        self.running != 0 && self.came_for[chunk as usize] == self.running
    }

    /// Whether `chunk` is to be left where it is.
    fn is_needed(&self, chunk: Chunk) -> bool {
        self.is_running(chunk) || self.roots.needed_in(chunk).is_some()
    }

    /// A chunk is taken from the va_block that it backs, whose memory goes to the host.
    pub(super) fn evict(&mut self, chunk: Chunk) {
        self.roots.free(chunk);
        self.came_for[chunk as usize] = 0;
        if let Some(b) = self.backs[chunk as usize].take() {
            let block = &mut self.blocks[b];
            let dropped = block.pages.there & block.pages.discarded;
            block.pages.populated -= dropped;
            block.pages.there = PageMask::EMPTY;
            block.chunk = None;
        }
    }

    /// The va_block gets a chunk that nobody has.
    pub(super) fn back(&mut self, b: usize, chunk: Chunk) {
        let whose = holder(self.blocks[b].space);
        self.backs[chunk as usize] = Some(b);
        self.blocks[b].chunk = Some(chunk);
        self.roots.used_by(chunk, whose).unwrap();
        self.roots.insert(chunk, whose).unwrap();
    }

    /// The va_block's memory goes, with its chunk.
    pub(super) fn drop_chunk(&mut self, b: usize) {
        if let Some(chunk) = self.blocks[b].chunk.take() {
            self.backs[chunk as usize] = None;
            self.came_for[chunk as usize] = 0;
            self.roots.free(chunk);
            self.free.push(chunk);
        }
        self.blocks[b].pages.there = PageMask::EMPTY;
    }

    /// The queue that the chunk of a va_block belongs to.
    pub(super) fn requeue(&mut self, b: usize) {
        let block = &self.blocks[b];
        let Some(chunk) = block.chunk else { return };
        if block.pages.there.is_subset(&block.pages.discarded) {
            self.came_for[chunk as usize] = 0;
        }
        if block.pages.there.is_empty() {
            self.roots.set(chunk, Queue::Unused).unwrap();
        } else if block.pages.there.is_subset(&block.pages.discarded) {
            self.roots.set(chunk, Queue::Discarded).unwrap();
        } else {
            self.roots.used_by(chunk, holder(block.space)).unwrap();
        }
    }

    pub(super) fn is_locked(&self, chunk: Chunk) -> bool {
        self.backs[chunk as usize].is_some_and(|b| self.blocks[b].locked)
    }
}

type Thread<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What the worker's thread and those that disturb it share. One runs at a time.
pub(super) struct World {
    shared: Exploration<State>,
    pub(super) tables: RefCell<Correlator>,
    pub(super) feed: Feed,
    share: Share,
    pub(super) worker: Worker,
    /// One copy in so many fails.
    pub(super) fails: Cell<usize>,
}

impl World {
    pub(super) fn new(seed: u64, chunks: u32, worker: Worker) -> Self {
        let mut spaces = <[SpaceLock; 2]>::default();
        for lock in &mut spaces {
            lock.writers_first = seed % 2 == 0;
        }
        let state = State {
            blocks: Vec::new(),
            spaces,
            pm_readers: 0,
            suspended: false,
            stopping: false,
            registered: true,
            roots: RootChunks::new(chunks).unwrap(),
            generation: 1,
            backs: vec![None; chunks as usize],
            begun: 0,
            running: 0,
            came_for: vec![0; chunks as usize],
            free: (0..chunks).collect(),
            serving: false,
            woken: false,
            flights: Vec::new(),
            reads: Vec::new(),
            wrong: None,
        };
        Self {
            shared: Exploration::new(state, seed),
            tables: RefCell::new(correlator()),
            feed: Feed::new(16, 64).unwrap(),
            share: Share::new(1 << 20),
            worker,
            fails: Cell::new(usize::MAX),
        }
    }

    /// The process announces a kernel; 0: none that is known.
    pub(super) fn announce(&self, id: u32) {
        let s = &mut *self.now();
        s.begun += 1;
        s.running = s.begun;
        self.worker.begins(&mut s.roots, s.generation, holder(OURS));
        self.feed.announce(ExecId(id.into()));
        s.woken = true;
    }
}

impl Deref for World {
    type Target = Exploration<State>;

    fn deref(&self) -> &Self::Target {
        &self.shared
    }
}

/// The worker's VA space and GPU, with everybody else in between.
pub(super) struct Model<'a> {
    pub(super) w: &'a World,
    pub(super) others: Vec<Thread<'a>>,
    entered: bool,
    /// The va_block that calls mean, and that a pick noted.
    block: Option<usize>,
    noted: Option<usize>,
    locked: bool,
    /// A chunk that was got while the va_block's lock was let go.
    in_hand: Option<Chunk>,
    /// The fault service was looked at, or waited for, since the last block was begun.
    looked: bool,
    /// There was room at a look since the va_block was locked.
    had_room: bool,
    /// Chunks that nobody had, and that could be had without a copy, at the last look.
    free: u32,
    ready: u32,
    /// There were enough when the last one was picked.
    enough: bool,
    pub(super) watermark: u32,
    /// By number of a copy: the UM block that it is of, from `migrate` to `settle`.
    copying: [Option<u32>; IN_FLIGHT as usize],
    /// Blocks that were begun in this hold, and after the VA space was known to end.
    begun_in_hold: u32,
    begun_after_stop: u32,
    /// Blocks that were counted, moved to the GPU, and pushed out.
    pub(super) counted: u64,
    /// Waits for faults, after each of which a block may be put back.
    pub(super) waits: u64,
    pub(super) moved: u64,
    pub(super) pushed: u64,
    /// Looks at what the SSD has of a block, after each of which the block may be put aside; and what was asked for.
    pub(super) aside: u64,
    pub(super) asked: u64,
}

impl<'a> Model<'a> {
    pub(super) fn new(w: &'a World, others: Vec<Thread<'a>>, watermark: u32) -> Self {
        Self {
            w,
            others,
            entered: false,
            block: None,
            noted: None,
            locked: false,
            in_hand: None,
            looked: false,
            had_room: false,
            free: 0,
            ready: 0,
            enough: false,
            watermark,
            copying: [None; IN_FLIGHT as usize],
            begun_in_hold: 0,
            begun_after_stop: 0,
            counted: 0,
            waits: 0,
            moved: 0,
            pushed: 0,
            aside: 0,
            asked: 0,
        }
    }

    /// Another thread, or the GPU, goes on.
    pub(super) fn step(&mut self) {
        let undone = |f: &Flight| !f.done;
        let copies = self.w.now().flights.iter().filter(|f| undone(f)).count();
        let n = self.others.len() + copies;
        if n == 0 {
            return;
        }
        let choice = self.w.below(n);
        if choice < copies {
            let s = &mut *self.w.now();
            if let Some(f) = s.flights.iter_mut().filter(|f| undone(f)).nth(choice) {
                f.done = true;
            }
            return;
        }
        let thread = choice - copies;
        let mut context = Context::from_waker(Waker::noop());
        if self.others[thread].as_mut().poll(&mut context).is_ready() {
            drop(self.others.swap_remove(thread));
        }
    }

    /// Before each call of the worker.
    fn others_run(&mut self) {
        for _ in 0..[0, 0, 1, 1, 2, 7][self.w.below(6)] {
            self.step();
        }
    }

    /// The worker waits until `ready`, as others go on.
    fn wait(&mut self, what: &str, mut ready: impl FnMut(&mut State) -> bool) {
        for _ in 0..TOO_LONG {
            if ready(&mut self.w.now()) {
                return;
            }
            self.step();
        }
        self.blame(format!("the worker waits for ever: {what}"));
        panic!("the worker waits for ever: {what}");
    }

    fn blame(&self, what: String) {
        self.w.now().blame(what);
    }

    /// What must be when a block is about to be begun.
    fn check_begin(&mut self, b: usize, copy: u32, pages: &PageMask, to: To) {
        let s = &mut *self.w.now();
        let block = &s.blocks[b];
        let um = block.um;
        let place = &mut self.copying[copy as usize];
        let new = *place != Some(um);
        let mut wrong = vec![
            (!self.entered || !self.locked, "it moves without locks"),
            (block.space != OURS, "it moves another's memory"),
            (!block.alive, "it moves memory that is gone"),
            (!block.hindrances.may_move(), "it moves what policy keeps"),
            (new && place.is_some(), "a copy is forgotten"),
            (new && !self.looked, "it does not look for faults"),
        ];
        let p = &block.pages;
        if to == To::Gpu {
            let fit = p.populated - p.thrashing - p.discarded;
            wrong.push((!pages.is_subset(&fit), "it brings pages that are not fit"));
        } else {
            wrong.push((self.enough, "it pushes out though there are chunks enough"));
            let needed = block.chunk.is_some_and(|c| s.is_needed(c));
            wrong.push((needed, "it pushes out what is needed"));
            wrong.push((
                !pages.is_subset(&p.there),
                "it pushes out what is not there",
            ));
            let discarded = pages.intersects(&p.discarded);
            wrong.push((discarded, "it copies what is discarded to the host"));
        }
        if new {
            *place = Some(um);
            self.looked = false;
            self.begun_in_hold += 1;
            self.begun_after_stop += u32::from(s.stopping);
        }
        wrong.push((self.begun_in_hold > 4, "it holds the locks too long"));
        wrong.push((self.begun_after_stop > 1, "it goes on though it must stop"));
        if let Some((_, what)) = wrong.iter().find(|(is, _)| *is) {
            s.blame(format!("{what}: block {b}, {to:?}"));
        }
    }

    /// What must be when pages of a block are asked for.
    fn check_fetch(&mut self, pages: &PageMask) {
        let s = &mut *self.w.now();
        let Some(block) = self.block.map(|b| &s.blocks[b]) else {
            return s.blame("it asks for nothing".into());
        };
        let p = &block.pages;
        let fit = block.stored - block.coming() - p.thrashing - p.discarded;
        let wrong = [
            (!self.entered || !self.locked, "without locks"),
            (block.space != OURS, "for another's memory"),
            (!block.alive, "for memory that is gone"),
            (!block.hindrances.may_move(), "for what policy keeps"),
            (block.failed, "for what could not be read"),
            (pages.is_empty(), "for no page"),
            (!pages.is_subset(&fit), "for what is not fit, or twice"),
            (!self.had_room && p.there.is_empty(), "without room"),
        ];
        if let Some((_, what)) = wrong.iter().find(|(is, _)| *is) {
            s.blame(format!("it asks {what}: {}", block.um));
        }
    }

    /// The lock of the va_block is let go for memory that its page tables need, and taken again.
    fn let_go_of(&mut self, b: usize) {
        self.w.now().blocks[b].locked = false;
        self.others_run();
        self.wait("its va_block", |s| {
            let free = !s.blocks[b].locked;
            s.blocks[b].locked |= free;
            free
        });
    }

    /// A chunk for the va_block, if one is free. Otherwise its lock is let go while another
    /// chunk is taken from who has it, if there is one that is not pinned, or held by somebody.
    fn get_chunk(&mut self, b: usize) -> Result<Chunk, Migrated> {
        if let Some(chunk) = self.in_hand.take() {
            return Ok(chunk);
        }
        if let Some(chunk) = self.w.now().free.pop() {
            return Ok(chunk);
        }
        self.w.now().blocks[b].locked = false;
        self.wait("a chunk", |s| {
            let unlocked = s.roots.victim().is_none_or(|v| !s.is_locked(v.chunk));
            !s.free.is_empty() || unlocked
        });
        let is_held = self.w.chance(self.w.fails.get());
        let chunk = {
            let s = &mut *self.w.now();
            s.free.pop().or_else(|| {
                let victim = s.roots.victim().filter(|_| !is_held)?;
                if (victim.expected || s.is_running(victim.chunk)) && !self.had_room {
                    s.blame(format!("chunk {} was needed", victim.chunk));
                }
                s.evict(victim.chunk);
                Some(victim.chunk)
            })
        };
        self.in_hand = chunk;
        self.others_run();
        self.wait("its va_block", |s| {
            let free = !s.blocks[b].locked;
            s.blocks[b].locked |= free;
            free
        });
        Err(match chunk {
            Some(_) => Migrated::Again,
            None => Migrated::NoRoom,
        })
    }
}

impl Machine for Model<'_> {
    const CHECKS: bool = true;

    fn broken(&mut self, invariant: &'static str) {
        self.blame(invariant.into());
    }

    fn tables<R>(&mut self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R {
        self.others_run();
        look(&mut self.w.tables.borrow_mut(), &self.w.feed, &self.w.share)
    }

    fn is_stopping(&mut self) -> bool {
        self.others_run();
        self.w.now().stopping
    }

    fn faults(&mut self) -> bool {
        self.others_run();
        let serving = self.w.now().serving;
        self.looked |= !serving;
        serving
    }

    fn wait_faults(&mut self) -> bool {
        if self.entered || self.locked {
            self.blame("it waits for faults with locks held".into());
        }
        self.looked = true;
        self.waits += 1;
        for _ in 0..30 {
            self.step();
            if !self.w.now().serving {
                return true;
            }
        }
        false
    }

    fn enter(&mut self) -> bool {
        self.others_run();
        {
            let s = &mut *self.w.now();
            if self.entered {
                s.blame("it takes the locks twice".into());
            }
            if s.stopping || s.suspended {
                return false;
            }
            s.pm_readers += 1;
        }
        self.wait("the VA space's lock", |s| s.spaces[OURS].try_read());
        self.entered = self.w.now().registered;
        self.begun_in_hold = 0;
        if !self.entered {
            let s = &mut *self.w.now();
            s.spaces[OURS].read_unlock();
            s.pm_readers -= 1;
        }
        self.entered
    }

    fn leave(&mut self) {
        self.others_run();
        let s = &mut *self.w.now();
        if self.copying.iter().any(|c| c.is_some()) {
            s.blame("it lets go while it copies".into());
        }
        if !self.entered || self.locked {
            s.blame("it lets go what it does not hold, or with a va_block locked".into());
        }
        self.entered = false;
        (self.block, self.noted) = (None, None);
        s.spaces[OURS].read_unlock();
        s.pm_readers -= 1;
    }

    fn holder(&self) -> Holder {
        holder(OURS)
    }

    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R> {
        self.others_run();
        let s = &mut *self.w.now();
        self.had_room |= s.has_room();
        let queues = [Queue::Unused, Queue::Discarded].map(|q| s.roots.length(q));
        self.ready = self.free + queues[0] + queues[1];
        Some(look(&mut s.roots, s.generation))
    }

    fn free_chunks(&mut self, enough: u32) -> u32 {
        self.others_run();
        let s = &mut *self.w.now();
        self.had_room |= s.has_room();
        self.free = (s.free.len() as u32).min(enough);
        self.free
    }

    fn pick(&mut self, choose: impl FnOnce(&RootChunks) -> Option<Chunk>) -> Option<Chunk> {
        self.others_run();
        let s = &mut *self.w.now();
        let chunk = choose(&s.roots)?;
        if s.is_needed(chunk) {
            s.blame(format!("chunk {chunk} is needed"));
        }
        self.noted = s.backs[chunk as usize];
        self.enough = self.ready >= self.watermark;
        Some(chunk)
    }

    fn victim(&mut self) -> Option<Hindrances> {
        self.others_run();
        let s = self.w.now();
        let noted = self.noted.take();
        self.block = noted.filter(|b| s.blocks[*b].alive && s.blocks[*b].space == OURS);
        Some(s.blocks[self.block?].hindrances)
    }

    fn next_block(&mut self, from: u64, last: u64) -> Option<Found> {
        self.others_run();
        if !self.entered {
            self.blame("it looks for memory without locks".into());
        }
        let um = (from / UmBlock::SIZE) as u32;
        let s = self.w.now();
        let ours = |b: &Block| b.space == OURS && b.um == um && b.alive;
        self.block = s.blocks.iter().position(ours);
        Some(Found {
            hindrances: s.blocks[self.block?].hindrances,
            next: last + 1,
        })
    }

    fn lock(&mut self, _: To) {
        let Some(b) = self.block else {
            return self.blame("it locks nothing".into());
        };
        self.others_run();
        self.wait("a va_block", |s| {
            let free = !s.blocks[b].locked;
            s.blocks[b].locked |= free;
            free
        });
        (self.locked, self.had_room) = (true, false);
    }

    fn unlock(&mut self) {
        self.others_run();
        let s = &mut *self.w.now();
        if !core::mem::take(&mut self.locked) {
            s.blame("it unlocks what it has not locked".into());
        }
        if let Some(b) = self.block {
            s.blocks[b].locked = false;
        }
        if let Some(chunk) = self.in_hand.take() {
            s.free.push(chunk);
        }
    }

    fn pages(&mut self) -> Pages {
        self.others_run();
        let s = self.w.now();
        self.block.map_or(Pages::default(), |b| s.blocks[b].pages)
    }

    fn stored(&mut self) -> Stored {
        let s = self.w.now();
        let Some(block) = self.block.map(|b| &s.blocks[b]) else {
            return Stored::default();
        };
        let coming = block.coming();
        self.aside += u64::from(!block.stored.is_empty());
        Stored {
            idle: if block.failed {
                PageMask::EMPTY
            } else {
                block.stored - coming
            },
            coming,
            failed: block.failed,
        }
    }

    fn fetch(&mut self, pages: &PageMask) -> bool {
        self.others_run();
        self.check_fetch(pages);
        let Some(b) = self.block.filter(|_| !self.w.chance(16)) else {
            return false;
        };
        let s = &mut *self.w.now();
        s.blocks[b].asked |= *pages;
        (s.blocks[b].counts, s.blocks[b].told) = (true, true);
        s.reads.push(b);
        // What is freed is not read.
        let is_read = |b: &&Block| b.alive && b.counts && b.stored.intersects(&b.asked);
        if s.blocks.iter().filter(is_read).count() > FETCHES {
            s.blame("too many blocks are on their way from the SSD".into());
        }
        self.asked += 1;
        true
    }

    fn tell_of_reads(&mut self) {
        match self.block.filter(|_| self.locked) {
            Some(b) => self.w.now().blocks[b].told = true,
            None => self.blame("it is told of reads of nothing, or without a lock".into()),
        }
    }

    fn chunk(&mut self) -> Option<Chunk> {
        self.others_run();
        self.w.now().blocks[self.block?].chunk
    }

    fn drop_discarded(&mut self, leaving: &PageMask) -> Migrated {
        self.others_run();
        let Some(b) = self.block.filter(|_| self.locked) else {
            self.blame("it drops nothing, or without a lock".into());
            return Migrated::Failed;
        };
        if self.w.chance(self.w.fails.get()) {
            return Migrated::Failed;
        }
        if self.w.chance(8) {
            self.let_go_of(b);
            return Migrated::Again;
        }
        let s = &mut *self.w.now();
        let p = &mut s.blocks[b].pages;
        let dropped = *leaving & p.discarded;
        p.there -= dropped;
        p.populated -= dropped;
        // Nobody uses the rest by that.
        if p.there.is_empty() {
            s.requeue(b);
        }
        Migrated::Begun
    }

    fn migrate(&mut self, copy: u32, pages: &PageMask, to: To) -> Migrated {
        self.others_run();
        let Some(b) = self.block else {
            self.blame("it moves nothing".into());
            return Migrated::Failed;
        };
        self.check_begin(b, copy, pages, to);
        if self.w.chance(self.w.fails.get()) {
            return Migrated::Failed;
        }
        if to == To::Gpu && self.w.now().blocks[b].chunk.is_none() {
            match self.get_chunk(b) {
                Ok(chunk) => self.w.now().back(b, chunk),
                Err(not) => return not,
            }
        }
        // Memory for page tables, for which the lock is let go.
        if self.w.chance(8) {
            self.let_go_of(b);
            return Migrated::Again;
        }
        let s = &mut *self.w.now();
        let there = &mut s.blocks[b].pages.there;
        match to {
            To::Gpu => *there |= *pages,
            To::Host => *there -= *pages,
        }
        s.requeue(b);
        s.flights.push(Flight {
            number: copy,
            done: false,
        });
        Migrated::Begun
    }

    fn settle(&mut self, copy: u32) -> Settled {
        if self.locked {
            self.blame("it waits for a copy with a va_block locked".into());
        }
        let pending = |f: &Flight| f.number == copy && !f.done;
        let waited = self.w.now().flights.iter().any(pending);
        self.wait("a copy", |s| !s.flights.iter().any(pending));
        self.w.now().flights.retain(|f| f.number != copy);
        self.copying[copy as usize] = None;
        Settled {
            good: !self.w.chance(self.w.fails.get()),
            waited,
        }
    }

    fn waited(&mut self, beside: u32) {
        let others = self.copying.iter().flatten().count();
        if others != beside as usize {
            self.blame(format!("{beside} blocks are copied, not {others}"));
        }
    }

    fn brought(&mut self, outcome: Outcome, _: u32) {
        self.counted += 1;
        self.moved += u64::from(outcome == Outcome::Moved);
    }

    fn pushed_out(&mut self, _: u32) {
        self.pushed += 1;
    }
}
