// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The explorer: the real table and the real state of va_blocks, under threads that do what
//! the C does, in an order that is drawn.
//!
//! Each thread is a function that waits wherever the C drops a lock, takes one, or does I/O
//! ([`threads`]); which goes on next, and what the device does next, is drawn from a seed, so
//! that an interleaving can be had again. The device keeps what it is given, does it late and
//! in any order, in parts. What is asked ([`world`]): whoever uses a page finds what was
//! written there last, and no page is lost, or has two places. At the end no slot is in use and
//! nobody waits. As long as nothing is under way, a slot is free or can be emptied.
//!
//! `UVM_EXPLORE` is the number of interleavings, `UVM_TEST_SEED` the seed of the first one;
//! each has the seed after the last one's. A failure names its own.

use super::super::table::Part;
use super::super::wants::Asks;
use super::super::Place;
use crate::testing::{setting, tell_mutant, Dice};
use std::boxed::Box;
use std::format;
use std::future::Future;
use std::pin::Pin;
use std::string::{String, ToString};
use std::task::{Context, Poll, Waker};
use std::vec::Vec;

mod asked;
mod drain;
mod fetch;
mod held;
mod parked;
mod spill;
mod split;
mod threads;
mod trim;
mod turns;
mod world;

use parked::{discard_lazily, fetchers, gpu_faults};
use spill::Real;
use threads::{
    accessed_by, death, detach, discard, eviction_mappings, fault, gpu, move_range, split, stores,
    unmaps, worker,
};
use trim::trims;
use world::{Block, World, ANY};

/// What is taken out, to see that it is noticed. Two are second barriers behind [`Lack::MapEndsSpill`]: that
/// is out with them, and with it the threads that only it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// A part of the policy.
    Policy(Part),
    /// Of the C: what was mapped in the meantime is not taken from the host.
    SpillSeesMappings,
    /// Of the C: a fault tells that pages are used.
    FaultTouches,
    /// Of the C: a mapping for writing gives copies up.
    MapGivesCopiesUp,
    /// Of the C: a mapping ends the write of what it maps.
    MapEndsSpill,
    /// Of the C: detaching waits for reads that nobody needs any more.
    DetachWaits,
    /// Who cannot fetch for a GPU's fault now lets others ask again.
    FetchGivesUp,
    /// Of the C: what was discarded lazily is looked for again where the lock was dropped.
    DropLooksAgain,
    /// Of the C: a spill does not wait for the VA space's lock with the block's. Who waits to write
    /// comes first, and may wait for one who wants the block.
    SpillOnlyTries,
    /// Of the C: nor does who fetches for a GPU's fault.
    FetchOnlyTries,
    /// A slot is given back when the device has forgotten what was there.
    TrimWaits,
    /// Of the C: who asks for that waits for the GPUs' work on a block.
    SpillWaitsForGpus,
    /// Who waits for what a read is made with has not the block's lock, which who has it may wait for.
    SetWaitsUnlocked,
    /// Of the C: a reader has its set before it locks the VA space.
    ReaderTakesSet,
    /// Of the C: whether somebody holds a page is not asked of all mappings of its folio, of which a split gives others a part.
    HeldCountsOwn,
    /// What is copied inside the device is compared with its sums before it is written.
    MoveChecksSums,
}

impl Lack {
    fn name(self) -> String {
        match self {
            Self::Policy(part) => format!("{part:?}"),
            of_c => format!("{of_c:?}"),
        }
    }

    /// Whether it is a second barrier behind [`Lack::MapEndsSpill`].
    pub(super) fn is_second(self) -> bool {
        matches!(self, Self::SpillSeesMappings | Self::FaultTouches)
    }
}

/// Who of the threads runs the driver's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsItIs {
    Nobody,
    Spill,
    Split,
    Detach,
    Asked,
    Trim,
}

/// Who asks for pages, and so the queues of those who read them.
const ALL_ASKS: [Asks; 3] = [Asks::Fault, Asks::Call, Asks::Prefetch];

/// What of it has done something.
#[derive(Default)]
struct Done {
    spilled: u64,
    splits: u64,
    detached: u64,
    served: u64,
    trimmed: u64,
}

/// One that is slow is passed over mostly when its turn comes, so that others do much
/// meanwhile.
struct Thread<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    slow: bool,
}

/// Steps that no interleaving needs.
const TOO_LONG: u32 = 200_000;

/// What is slow goes on once in so many turns.
const SLOW: usize = 64;

/// One interleaving; `real` of the threads is as it is. Returns what that did.
fn explore(seed: u64, lack: Option<Lack>, real: AsItIs) -> Result<Done, String> {
    let dice = |n: usize, salt: u64| Dice::new(seed ^ (salt << 40)).below(n);
    // A few workers on a small device of which much is dead: relocation has most to do.
    let gathering = dice(4, 4) == 0;
    let slots = if gathering { 3 } else { 3 + dice(3, 1) as u32 };
    // Room for all, or for less than a block or two.
    let quota = [u64::MAX, 1_200, 400][dice(3, 12)];
    let w = World::new(seed, slots, quota, lack);
    w.unsure.set([usize::MAX, 16, 3][dice(3, 13)]);
    w.fails.set([usize::MAX, 16, 2][dice(3, 3)]);
    w.lapses.set([usize::MAX, 64, 8][dice(3, 18)]);
    // One page that cannot be moved.
    if dice(4, 7) == 0 {
        w.bad.set(Some(Place {
            slot: dice(slots as usize, 8) as u32,
            offset: dice(512, 9) as u16,
        }));
    }
    if dice(2, 14) == 0 {
        let spaces = &mut w.now().spaces;
        spaces.iter_mut().for_each(|s| s.lock.writers_first = true);
    }
    // So few extents that most writes find none, and splits must do without.
    if dice(4, 5) == 0 {
        w.now().table.limit_extents(1 + dice(6, 6) as u32);
    }
    for n in 0..2 + dice(3, 2) {
        let read_mostly = dice(3, 10 + n as u64) == 0;
        w.now().add_block(Block::new(n % 2, 512, read_mostly));
        // Some were split before.
        if real == AsItIs::Spill && dice(12, 20 + n as u64) == 0 {
            let s = &mut *w.now();
            let upper = s.blocks.last_mut().map(|block| block.upper_half(256));
            upper.into_iter().for_each(|upper| s.add_block(upper));
        }
    }
    // The queue of fetchers that is served as it is.
    let queue = [Asks::Call, Asks::Fault][dice(2, 17)];
    // Slots that are trimmed, and wanted, all the time.
    let trimming = match dice(8, 15) {
        0 => 1 + dice(3, 16),
        _ => usize::from(real == AsItIs::Trim),
    };
    let mut threads = cast(&w, gathering, trimming, (real, queue));
    let done = as_it_is(&w, &mut threads, (real, queue))
        .and_then(|done| run(&w, &mut threads).map(|()| done))
        .inspect_err(|_| {
            // Who is in the middle of a read or a write does not end it any more.
            core::mem::forget(core::mem::take(&mut threads));
        })?;
    drop(threads);
    finish(&w)?;
    Ok(done)
}

/// A thread of the driver's own code, while all others go on.
fn as_it_is<'w>(
    w: &'w World,
    threads: &mut Vec<Thread<'w>>,
    (who, queue): (AsItIs, Asks),
) -> Result<Done, String> {
    let times = 1 + w.below(8) as u32;
    let is_worker = u32::from(matches!(who, AsItIs::Spill | AsItIs::Trim));
    w.now().workers += is_worker;
    let mut real = Real::new(w, threads, times);
    let mut done = Done::default();
    match who {
        AsItIs::Nobody => {}
        AsItIs::Spill if w.chance(3) => (0..times).for_each(|_| real.move_out()),
        AsItIs::Spill => real.work(),
        AsItIs::Split => {
            let blocks = w.now().blocks.len();
            for _ in 0..times {
                real.split();
                (0..w.below(32)).for_each(|_| real.pause());
            }
            done.splits = (w.now().blocks.len() - blocks) as u64;
        }
        AsItIs::Detach => {
            (0..w.below(200)).for_each(|_| real.pause());
            real.detach();
            done.detached = w.now().closed.into();
        }
        AsItIs::Asked => {
            // By now something was spilled.
            (0..w.below(200)).for_each(|_| real.pause());
            (0..3 + w.below(6)).for_each(|_| real.others.push(missing(w)));
            // Those of the other queue may have gone, for want of anybody who asks.
            for other in ALL_ASKS.into_iter().filter(|other| *other != queue) {
                let future = Box::pin(fetchers(w, other));
                real.others.push(Thread {
                    future,
                    slow: false,
                });
            }
            done.served = real.serve_all(queue);
        }
        AsItIs::Trim => real.trim(4 * times),
    }
    real.check();
    (done.spilled, done.trimmed) = (real.spilled, real.trimmed);
    w.now().workers -= is_worker;
    match w.now().wrong.take() {
        Some(wrong) => Err(wrong),
        None => Ok(done),
    }
}

/// Draws which threads run in this interleaving.
fn cast(
    w: &World,
    gathering: bool,
    trimming: usize,
    (real, as_it_is): (AsItIs, Asks),
) -> Vec<Thread<'_>> {
    let draw = |n: usize| w.dice.borrow_mut().below(n);
    let mut threads: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    let (workers, kinds) = match (gathering, trimming) {
        (true, _) => (3, 12),
        (false, 0) if w.maps_silently() && real != AsItIs::Asked => (1, 34),
        (false, 0) => (1, 30),
        (false, _) => (2, 20),
    };
    for _ in 0..workers + draw(3) {
        w.now().workers += 1;
        let times = 2 + draw(4) + workers;
        threads.push(Box::pin(worker(w, times as u32)));
    }
    let focus = draw(3) == 0;
    // Many GPU faults, and few of the rest.
    let faulting = !gathering && draw(4) == 0;
    for _ in 0..4 + draw(10) {
        let blocks = w.now().blocks.len();
        let b = if focus { 0 } else { draw(blocks) };
        let times = 1 + draw(4);
        let kind = match faulting && draw(2) == 0 {
            true => 23,
            false => draw(kinds),
        };
        threads.push(match kind {
            0..=3 => Box::pin(again(times, move || fault(w, b, true))),
            4..=7 => Box::pin(again(times, move || fault(w, b, false))),
            8..=11 => Box::pin(again(times, move || discard(w, b))),
            12..=15 => {
                w.now().workers += 1;
                Box::pin(move_range(w, b, draw(3) == 0))
            }
            16 | 17 => Box::pin(split(w, b)),
            18 => Box::pin(death(w, b % 2)),
            19 | 20 => Box::pin(again(times, move || accessed_by(w, b))),
            21 | 22 => Box::pin(gpu(w, b)),
            23..=26 => {
                w.now().askers += 1;
                Box::pin(gpu_faults(w, b, times))
            }
            27 | 28 => Box::pin(again(times, move || discard_lazily(w, b))),
            29 => Box::pin(stores(w, b)),
            30..=32 => Box::pin(again(times, move || eviction_mappings(w, b))),
            _ => Box::pin(again(2 * times, move || unmaps(w, b))),
        });
    }
    for _ in 0..trimming {
        w.now().workers += 2;
        threads.push(Box::pin(trims(w)));
        // Slots become free, and are wanted again.
        threads.push(Box::pin(worker(w, 16)));
        for b in 0..w.now().blocks.len() {
            threads.push(Box::pin(again(8, move || fault(w, b, true))));
            threads.push(Box::pin(again(4, move || discard(w, b))));
        }
    }
    if draw(3) == 0 && real != AsItIs::Detach {
        threads.push(Box::pin(detach(w)));
    }
    for queue in ALL_ASKS {
        let fetching = match real {
            AsItIs::Asked if queue == as_it_is => draw(2),
            _ => 1 + draw(3),
        };
        for _ in 0..fetching {
            threads.push(Box::pin(fetchers(w, queue)));
        }
    }
    // All programs begin with something in memory.
    for b in 0..w.now().blocks.len() {
        threads.push(Box::pin(fault(w, b, true)));
    }
    let slow = |future| Thread {
        future,
        slow: draw(4) == 0,
    };
    threads.into_iter().map(slow).collect()
}

/// One of those who go on while a device is detached.
fn late(w: &World) -> Thread<'_> {
    let b = w.below(w.now().blocks.len());
    let future: Pin<Box<dyn Future<Output = ()> + '_>> = match w.below(10) {
        0..=2 => Box::pin(split(w, b)),
        3 | 4 => Box::pin(again(2, move || fault(w, b, false))),
        5 | 6 => Box::pin(again(3, move || discard(w, b))),
        7 => Box::pin(gpu(w, b)),
        8 => Box::pin(again(3, move || accessed_by(w, b))),
        _ => Box::pin(death(w, b % 2)),
    };
    Thread {
        future,
        slow: w.chance(4),
    }
}

/// Faults of a GPU's on what may be on flash.
fn missing(w: &World) -> Thread<'_> {
    let b = w.below(w.now().blocks.len());
    w.now().askers += 1;
    Thread {
        future: Box::pin(gpu_faults(w, b, 1 + w.below(3))),
        slow: w.chance(4),
    }
}

async fn again<F: Future<Output = ()>>(times: usize, thread: impl Fn() -> F) {
    for _ in 0..times {
        thread().await;
    }
}

/// Draws who goes on until all have ended.
fn run(w: &World, threads: &mut Vec<Thread<'_>>) -> Result<(), String> {
    let mut context = Context::from_waker(Waker::noop());
    let mut poll = |threads: &mut Vec<Thread<'_>>, i: usize| {
        if threads[i].future.as_mut().poll(&mut context) == Poll::Ready(()) {
            drop(threads.swap_remove(i));
            true
        } else {
            false
        }
    };
    for step in 0..TOO_LONG {
        if let Some(wrong) = w.now().wrong.take() {
            return Err(wrong);
        }
        let parts = w.now().io_parts();
        if threads.is_empty() && parts == 0 {
            return Ok(());
        }
        if step % 16 == 0 {
            w.now().check();
        }
        let choice = w.dice.borrow_mut().below(threads.len() + parts);
        if choice >= threads.len() {
            let i = choice - threads.len();
            if !w.now().is_slow(i) || w.chance(SLOW) {
                w.now().perform(i);
            }
            continue;
        }
        if threads[choice].slow && !w.chance(SLOW) {
            continue;
        }
        let before = w.steps.get();
        let ended = poll(threads, choice);
        if !ended && w.steps.get() == before && parts == 0 {
            // It waits. If all do, nobody will ever go on.
            let mut on = false;
            for i in (0..threads.len()).rev() {
                on |= poll(threads, i);
            }
            if !on && w.steps.get() == before && w.now().io_parts() == 0 {
                return Err("all wait for each other".to_string());
            }
        }
    }
    Err("no end".to_string())
}

/// What must be when nothing is under way any more.
fn finish(w: &World) -> Result<(), String> {
    w.check_turns();
    let s = &mut *w.now();
    s.check();
    if s.table.is_busy() {
        return Err("a pin is left".to_string());
    }
    if s.pool.free() < s.pool.count() {
        return Err("a set of buffers is not given back".to_string());
    }
    // Relocation frees one where none is free. A place that cannot be read is tried in vain.
    let mut again = 0;
    while s.table.usage().free_slots == 0 && again < 64 {
        let Some(m) = s.table.relocate_begin() else {
            break;
        };
        let copied = !w.is_bad(m.from, m.pages);
        if copied {
            s.copy(m.from, m.to, m.pages);
        }
        again = if copied { 0 } else { again + 1 };
        let _ = s.table.relocate_end(m, copied);
    }
    // With a bad place it may be that there is none, but not while another slot would fit.
    if s.table.usage().free_slots == 0 && (w.bad.get().is_none() || s.table.could_free()) {
        let slots = s.table.describe();
        return Err(format!("no slot is free, and none can be emptied: {slots}"));
    }
    for b in 0..s.blocks.len() {
        s.fetch_all(b)?;
    }
    for b in 0..s.blocks.len() {
        let block = &mut s.blocks[b];
        block.state.release(&mut s.table);
    }
    s.table.check();
    let usage = s.table.usage();
    if (usage.pages, usage.extents, usage.free_slots) != (0, 0, usage.slots) {
        return Err(format!("slots leak: {usage:?}"));
    }
    match s.wrong.take() {
        Some(wrong) => Err(wrong),
        None => Ok(()),
    }
}

impl world::State {
    /// A copy inside the device, at once.
    fn copy(&mut self, from: Place, to: Place, pages: u16) {
        for k in 0..pages {
            let bytes = self.bytes(from, k);
            *self.bytes_mut(to, k) = bytes;
        }
    }

    /// Every page that the block has there is what was written last, as is every other.
    fn fetch_all(&mut self, b: usize) -> Result<(), String> {
        self.blocks[b].state.read_again();
        let on_flash = self.blocks[b].state.on_flash();
        if !on_flash.is_empty() {
            let state = &mut self.blocks[b].state;
            let read = state.begin_read(&mut self.table, &on_flash);
            let Ok(Some(read)) = read else {
                return Err(format!("block {b} cannot be read: {read:?}"));
            };
            for piece in read.pieces.iter() {
                for k in 0..piece.pages.pages() {
                    let bytes = self.bytes(piece.place, k);
                    let has_its_sum = self.has_its_sum(piece.place, k, &bytes);
                    if bytes.stamp != piece.stamp + u64::from(k) || !has_its_sum {
                        return Err(format!("block {b} has something else at {piece:?}"));
                    }
                    self.blocks[b].memory[usize::from(piece.pages.first() + k)] = bytes.value;
                }
            }
            let (all, none) = (read.pages, super::PageMask::EMPTY);
            let state = &mut self.blocks[b].state;
            let arrived = state.end_read(&mut self.table, read, &all, &none, false);
            self.blocks[b].resident |= arrived;
        }
        self.blocks[b].wait_gpus();
        let resident = self.blocks[b].resident;
        self.look(b, &resident);
        // What is nowhere was never written, or was discarded.
        let block = &self.blocks[b];
        let gone = super::pages(0, block.length) - resident - block.on_gpu;
        let lost = gone
            .pages()
            .find(|p| ![0, ANY].contains(&block.value[usize::from(*p)]));
        match lost.filter(|_| !block.dead) {
            Some(p) => Err(format!("page {p} of block {b} is nowhere")),
            None => Ok(()),
        }
    }
}

/// One interleaving. What is broken may panic, too.
fn explored(seed: u64, lack: Option<Lack>, real: AsItIs) -> Result<Done, String> {
    std::panic::catch_unwind(|| explore(seed, lack, real)).unwrap_or(Err("panicked".to_string()))
}

#[test]
#[cfg_attr(miri, ignore = "thousands of interleavings")]
fn no_interleaving_loses_a_page() {
    let count = setting("UVM_EXPLORE", 5_000);
    let seed = setting("UVM_TEST_SEED", 1);
    std::eprintln!("UVM_TEST_SEED={seed} UVM_EXPLORE={count}");
    let mut all = Done::default();
    for seed in (0..count).map(|n| seed.wrapping_add(n)) {
        let real = [
            AsItIs::Spill,
            AsItIs::Nobody,
            AsItIs::Detach,
            AsItIs::Spill,
            AsItIs::Split,
            AsItIs::Asked,
            AsItIs::Trim,
            AsItIs::Spill,
        ];
        match explored(seed, None, real[(seed % 8) as usize]) {
            Ok(done) => {
                all.spilled += done.spilled;
                all.splits += done.splits;
                all.detached += done.detached;
                all.served += done.served;
                all.trimmed += done.trimmed;
            }
            Err(wrong) => panic!("{wrong}: UVM_TEST_SEED={seed} UVM_EXPLORE=1"),
        }
    }
    // It is of no use if what is as it is does nothing.
    let (mib, splits, detached) = (all.spilled >> 20, all.splits, all.detached);
    let (served, trimmed) = (all.served, all.trimmed >> 20);
    std::eprintln!("as it is: {mib} MiB spilled, {splits} splits, {detached} devices let go, {served} blocks read, {trimmed} MiB trimmed");
    assert!(count < 1000 || mib > count / 20 && splits > count / 20 && detached > count / 20);
    assert!(count < 1000 || served > count / 20 && trimmed > count / 20);
}

/// Each part that keeps pages from being lost is needed, and the explorer notices within
/// 40,000 interleavings that it is gone.
#[test]
#[cfg_attr(miri, ignore = "thousands of interleavings")]
fn whatever_is_taken_out_is_noticed() {
    let parts = [
        Part::WritePins,
        Part::ReadPins,
        Part::MoveLooks,
        Part::MoveSums,
        Part::SpillLooks,
        Part::OneSpill,
        Part::ReadLooks,
        Part::ReadWaits,
        Part::SplitEndsSpill,
        Part::CopiesGivenUp,
        Part::CutsAnyway,
        Part::Shuns,
        Part::Spare,
        Part::OneVictim,
        Part::RoomBack,
        Part::Quota,
        Part::TrimTakesOut,
        Part::LostKeepPlaces,
    ];
    let lacks = [
        Lack::SpillSeesMappings,
        Lack::FaultTouches,
        Lack::MapGivesCopiesUp,
        Lack::MapEndsSpill,
        Lack::FetchGivesUp,
        Lack::DropLooksAgain,
        Lack::SpillOnlyTries,
        Lack::FetchOnlyTries,
        Lack::TrimWaits,
        Lack::SetWaitsUnlocked,
        Lack::MoveChecksSums,
    ];
    // What is noticed where the driver's own code runs, too.
    let of_real = [
        (Part::WritePins.into(), AsItIs::Spill),
        (Part::SpillLooks.into(), AsItIs::Spill),
        (Part::CopiesGivenUp.into(), AsItIs::Spill),
        (Lack::SpillSeesMappings, AsItIs::Spill),
        (Lack::DropLooksAgain, AsItIs::Spill),
        (Lack::SpillOnlyTries, AsItIs::Spill),
        (Lack::SpillWaitsForGpus, AsItIs::Spill),
        (Lack::HeldCountsOwn, AsItIs::Spill),
        (Lack::MoveChecksSums, AsItIs::Spill),
        (Part::SplitEndsSpill.into(), AsItIs::Split),
        (Part::CutsAnyway.into(), AsItIs::Split),
        (Lack::SpillOnlyTries, AsItIs::Detach),
        (Lack::DetachWaits, AsItIs::Detach),
        (Lack::FetchGivesUp, AsItIs::Asked),
        (Lack::FetchOnlyTries, AsItIs::Asked),
        (Lack::ReaderTakesSet, AsItIs::Asked),
        (Part::TrimTakesOut.into(), AsItIs::Trim),
    ];
    let all = parts.map(Lack::from).into_iter().chain(lacks);
    let all = all.map(|lack| (lack, AsItIs::Nobody));
    let mut unnoticed = Vec::new();
    for (lack, real) in all.chain(of_real) {
        let found = (1..=40_000).find_map(|seed| {
            explored(seed, Some(lack), real)
                .err()
                .map(|wrong| format!("order {seed}: {wrong}"))
        });
        let how = match real {
            AsItIs::Nobody => String::new(),
            real => format!("{real:?} as it is, "),
        };
        tell_mutant(&lack.name(), &how, found.as_deref());
        if found.is_none() {
            unnoticed.push((lack, real));
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
