// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What the walk asks of its machine, call by call: which blocks in which order, what is done
//! to one, and what is still done when a call of the machine's fails.

use super::super::*;
use super::{mask, A};
use crate::testing::tell;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

mod checks;

/// A call of the machine, with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Enter,
    Leave,
    NonFaultable,
    Kind(Span),
    Open,
    Close,
    Wait,
    Range(u64, u64),
    Rest,
    Dying,
    Block(u64),
    MayMigrate(Span),
    Lock,
    Unlock,
    Facts,
    Pinned,
    Keep,
    Held(u16),
    Drop(Region),
    ForgetThrashing(Region),
    ForgetStored(Region),
    Requeue(u16, Queue),
    NoteWork,
}
use Did::*;

/// The error of whatever a test says fails.
const BROKEN: u32 = 9;

/// What a va_block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// Nobody has touched it.
    Untouched,
    /// It may not migrate.
    Pinned,
    /// All of it is on the GPU, which is the memory with the number 1.
    Plain,
}

/// A machine that does what a test says.
struct Script {
    did: Vec<Did>,
    /// Blocks that were looked at.
    looked: usize,
    ranges: Vec<Span>,
    range: usize,
    /// By number of the va_block in the address space; `Plain` for those that are not named.
    blocks: Vec<(u64, Is)>,
    /// Where the block that is chosen lies.
    at: Option<Span>,
    locked: bool,
    /// By address of the block's first byte, what is kept.
    states: Vec<(u64, BlockState)>,
    /// The same: what was dropped. All else is resident on the GPU.
    gone: Vec<(u64, PageMask)>,
    mapped_2m: bool,
    /// Pages that somebody holds without a mapping, of each block.
    pinned: PageMask,
    non_faultable: bool,
    kind: super::super::Kind,
    memories: Vec<super::super::Held>,
    /// Dies when so many blocks were looked at.
    dies_after: usize,
    /// How many drops end in `Again` first.
    again: usize,
    /// The calls that fail.
    fails: Vec<Did>,
    broken: Option<Vec<&'static str>>,
    /// Spans that `block` gives instead.
    wrong_spans: VecDeque<Span>,
}

const MIB: u64 = 1 << 20;
/// Where the addresses of these tests begin: the block with number 8.
const BASE: u64 = 8 * BLOCK_BYTES;

fn span(base: u64, length: u64) -> Span {
    Span::of_pages(base, length).expect("a range of pages")
}

fn held(memory: u16, one_place: bool, root_chunk: bool) -> super::super::Held {
    super::super::Held {
        memory: Memory(memory),
        resident: PageMask::EMPTY,
        one_place,
        root_chunk,
    }
}

/// The pages of a mask that is one run.
fn run(mask: &PageMask) -> Region {
    mask.runs().next().expect("no page")
}

impl Script {
    /// Managed memory of so many bytes from `BASE` on, in one range.
    fn new(length: u64) -> Self {
        Self {
            did: Vec::new(),
            looked: 0,
            ranges: vec![span(BASE, length)],
            range: 0,
            blocks: Vec::new(),
            at: None,
            locked: false,
            states: Vec::new(),
            gone: Vec::new(),
            mapped_2m: false,
            pinned: PageMask::EMPTY,
            non_faultable: false,
            kind: super::super::Kind::Managed,
            memories: vec![held(0, true, false), held(1, true, true)],
            dies_after: usize::MAX,
            again: 0,
            fails: Vec::new(),
            broken: None,
            wrong_spans: VecDeque::new(),
        }
    }

    fn note(&mut self, did: Did) -> Result<(), u32> {
        self.did.push(did);
        assert!(self.did.len() < 200_000, "the walk does not end");
        if self.fails.contains(&did) {
            return Err(BROKEN);
        }
        Ok(())
    }

    fn is(&self, at: u64) -> Is {
        let named = |(number, _): &&(u64, Is)| *number == at / BLOCK_BYTES;
        self.blocks.iter().find(named).map_or(Is::Plain, |b| b.1)
    }

    fn run(&mut self, base: u64, length: u64, mode: Mode) -> (Result<(), Failure<u32>>, Counts) {
        let request = Request {
            base,
            length,
            mode,
            granule_shift: granule_shift(64),
        };
        self.range = 0;
        let mut counts = Counts::default();
        let result = discard(self, &request, &mut counts);
        (result, counts)
    }

    /// Discards all of the ranges that there are.
    fn whole(&mut self, mode: Mode) -> (Result<(), Failure<u32>>, Counts) {
        let (first, last) = (
            self.ranges[0].first,
            self.ranges[self.ranges.len() - 1].last,
        );
        self.run(first, last - first + 1, mode)
    }

    /// How often the machine was asked for something like this.
    fn count(&self, like: impl Fn(&Did) -> bool) -> usize {
        self.did.iter().filter(|did| like(did)).count()
    }

    /// What is done with a block from its lock on, of the first one.
    fn locked(&self) -> &[Did] {
        let at = |what: Did| {
            self.did
                .iter()
                .position(|did| *did == what)
                .expect("not done")
        };
        &self.did[at(Lock)..=at(Unlock)]
    }

    /// How the call ends.
    fn tail(&self) -> &[Did] {
        &self.did[self.did.len().saturating_sub(3)..]
    }

    /// What the block still has on the GPU.
    fn on_gpu(&self) -> PageMask {
        let at = self.at.expect("no block");
        let pages = ((at.last - at.first) / PAGE_BYTES + 1) as u16;
        let gone = self.gone.iter().filter(|(first, _)| *first == at.first);
        gone.fold(mask(0, pages), |left, (_, gone)| left - *gone)
    }

    /// The pages that the state at `address` says are discarded.
    fn discarded(&self, address: u64) -> u16 {
        let there = self.states.iter().find(|(at, _)| *at == address);
        there.map_or(0, |(_, state)| state.discarded().count())
    }
}

impl Machine for Script {
    type Error = u32;
    const CHECKS: bool = true;

    fn broken(&mut self, invariant: &'static str) {
        tell(&mut self.broken, invariant);
    }

    fn enter(&mut self) {
        let _ = self.note(Enter);
    }

    fn leave(&mut self) {
        assert!(!self.locked, "left with a block locked");
        let _ = self.note(Leave);
    }

    fn has_non_faultable(&mut self) -> bool {
        let _ = self.note(NonFaultable);
        self.non_faultable
    }

    fn kind(&mut self, span: Span) -> super::super::Kind {
        let _ = self.note(Did::Kind(span));
        self.kind
    }

    fn open(&mut self) -> Result<(), u32> {
        self.note(Open)
    }

    fn close(&mut self) {
        assert!(!self.locked, "closed with a block locked");
        let _ = self.note(Close);
    }

    fn wait(&mut self) -> Result<(), u32> {
        self.note(Wait)
    }

    fn range(&mut self, at: u64, last: u64) -> Option<Span> {
        let _ = self.note(Range(at, last));
        let range = *self.ranges.get(self.range)?;
        self.range += 1;
        (range.first <= last).then_some(range)
    }

    fn rest(&mut self) {
        let _ = self.note(Rest);
    }

    fn dying(&mut self) -> bool {
        let _ = self.note(Dying);
        self.looked >= self.dies_after
    }

    fn block(&mut self, at: u64) -> Option<Span> {
        let _ = self.note(Block(at));
        self.looked += 1;
        let range = self.ranges[self.range - 1];
        let inside = range.first <= at && at <= range.last;
        assert!(inside || self.broken.is_some(), "not of the range");
        let slot = at / BLOCK_BYTES * BLOCK_BYTES;
        let span = Span {
            first: range.first.max(slot),
            last: range.last.min(slot + BLOCK_BYTES - 1),
        };
        self.at = (self.is(at) != Is::Untouched).then_some(span);
        self.wrong_spans.pop_front().or(self.at)
    }

    fn may_migrate(&mut self, span: Span) -> bool {
        let _ = self.note(MayMigrate(span));
        self.is(span.first) != Is::Pinned
    }

    fn lock(&mut self) {
        assert!(!self.locked && self.at.is_some());
        self.locked = true;
        let _ = self.note(Lock);
    }

    fn unlock(&mut self) {
        assert!(self.locked);
        self.locked = false;
        let _ = self.note(Unlock);
    }

    fn facts(&mut self) -> super::super::Facts {
        assert!(self.locked);
        let _ = self.note(Facts);
        super::super::Facts {
            resident: self.on_gpu(),
            mapped_2m: self.mapped_2m,
        }
    }

    fn pinned(&mut self, pages: &PageMask) -> PageMask {
        assert!(self.locked && pages.is_subset(&self.on_gpu()));
        let _ = self.note(Pinned);
        self.pinned & *pages
    }

    fn state(&mut self) -> Option<&mut BlockState> {
        assert!(self.locked);
        let at = self.at.expect("no block").first;
        let found = self.states.iter_mut().find(|(first, _)| *first == at);
        found.map(|(_, state)| state)
    }

    fn keep(&mut self, state: BlockState) -> Result<(), crate::mem::OutOfMemory> {
        assert!(self.locked && self.state().is_none());
        self.note(Keep).map_err(|_| crate::mem::OutOfMemory)?;
        self.states.push((self.at.expect("no block").first, state));
        Ok(())
    }

    fn held(&mut self, from: Memory) -> Option<super::super::Held> {
        assert!(self.locked);
        let _ = self.note(Held(from.0));
        let mut held = *self.memories.iter().find(|m| m.memory >= from)?;
        if held.memory == A {
            held.resident = self.on_gpu();
        }
        Some(held)
    }

    fn drop_pages(&mut self, pages: &PageMask) -> Result<Dropped, u32> {
        assert!(self.locked);
        self.note(Drop(run(pages)))?;
        if self.again > 0 {
            self.again -= 1;
            return Ok(Dropped::Again);
        }
        self.gone.push((self.at.expect("no block").first, *pages));
        Ok(Dropped::All)
    }

    fn forget_thrashing(&mut self, pages: &PageMask) {
        assert!(self.locked);
        let _ = self.note(ForgetThrashing(run(pages)));
    }

    fn forget_stored(&mut self, pages: &PageMask) {
        assert!(self.locked);
        let _ = self.note(ForgetStored(run(pages)));
    }

    fn requeue(&mut self, memory: Memory, queue: Queue) {
        assert!(self.locked);
        let _ = self.note(Requeue(memory.0, queue));
    }

    fn note_work(&mut self) -> Result<(), u32> {
        assert!(self.locked);
        self.note(NoteWork)
    }
}

const WHOLE: Region = Region::WHOLE;

fn counts(discarded: u64, skipped: u64, partial: u64) -> Counts {
    Counts {
        discarded,
        skipped,
        partial,
    }
}

// --- the call ------------------------------------------------------------------------------

#[test]
fn only_whole_pages_are_a_range() {
    let top = u64::MAX - 0xfff;
    for (base, length) in [
        (0, 0),
        (0, 4096),
        (BASE, 0),
        (BASE + 1, 4096),
        (BASE, 4097),
        (top, 4096),
        (BASE, top),
    ] {
        let mut script = Script::new(4 * MIB);
        let (result, met) = script.run(base, length, Mode::Eager);
        assert_eq!((result, met), (Err(Failure::NotPages), counts(0, 0, 0)));
        assert!(script.did.is_empty(), "{base:#x} {length:#x}");
    }
    let last = Span::of_pages(top - 4096, 4096).map(|s| s.last);
    assert_eq!(last, Some(top - 1));
}

#[test]
fn an_eager_discard_does_all_in_order() {
    let mut script = Script::new(2 * MIB);
    let (result, met) = script.whole(Mode::Eager);
    assert_eq!((result, met), (Ok(()), counts(1, 0, 0)));
    let all = span(BASE, 2 * MIB);
    let whole = [
        Enter,
        NonFaultable,
        Did::Kind(all),
        Open,
        Range(all.first, all.last),
        Rest,
        Dying,
        Block(all.first),
        MayMigrate(all),
        Lock,
        Facts,
        Pinned,
        Held(0),
        Held(1),
        Held(2),
        Keep,
        Drop(WHOLE),
        ForgetThrashing(WHOLE),
        ForgetStored(WHOLE),
        Held(1),
        Requeue(1, Queue::Discarded),
        Held(2),
        NoteWork,
        Unlock,
        Close,
        Wait,
        Leave,
    ];
    assert_eq!(script.did, whole);
    assert_eq!(script.states[0].1.status(0), Status::Eager);
}

#[test]
fn a_lazy_discard_drops_nothing_and_waits_for_nothing_new() {
    let mut script = Script::new(2 * MIB);
    let (result, met) = script.whole(Mode::Lazy);
    assert_eq!((result, met), (Ok(()), counts(1, 0, 0)));
    let locked = [
        Lock,
        Facts,
        Held(0),
        Held(1),
        Held(2),
        Keep,
        ForgetStored(WHOLE),
        Held(1),
        Requeue(1, Queue::Discarded),
        Held(2),
        Unlock,
    ];
    assert_eq!(script.locked(), locked);
    assert_eq!(script.tail(), [Close, Wait, Leave]);
    assert_eq!(script.states[0].1.status(511), Status::Lazy);
}

#[test]
fn what_cannot_be_discarded_is_refused_and_nothing_opened() {
    use super::super::Kind;
    for (non_faultable, kind, failure) in [
        (true, Kind::Managed, Failure::CannotFault),
        // Which is said first, whatever the memory is.
        (true, Kind::Unknown, Failure::CannotFault),
        (false, Kind::Ordinary, Failure::Ordinary),
        (false, Kind::Unknown, Failure::Unknown),
    ] {
        let mut script = Script::new(2 * MIB);
        (script.non_faultable, script.kind) = (non_faultable, kind);
        let (result, met) = script.whole(Mode::Eager);
        assert_eq!((result, met), (Err(failure), counts(0, 0, 0)));
        assert_eq!(script.count(|did| matches!(did, Open | Lock | Rest)), 0);
        assert_eq!(script.did[script.did.len() - 2..], [Wait, Leave]);
    }
}

// --- the walk --------------------------------------------------------------------------------

/// A part at either end, blocks that are cut by their range, and several ranges.
#[test]
fn each_block_is_discarded_where_the_range_covers_it() {
    let mut script = Script::new(5 * MIB);
    // The first range ends amid a block, and the second begins there.
    let second = BASE + 5 * MIB;
    script.ranges.push(span(second, 3 * MIB));
    script.ranges.push(span(second + 3 * MIB, 2 * MIB));
    let (base, end) = (BASE + 0x3_0000, second + 3 * MIB + 0x4_0000);
    let (result, met) = script.run(base, end - base, Mode::Eager);
    assert_eq!((result, met), (Ok(()), counts(6, 0, 0)));
    let asked = script.did.iter().filter_map(|did| match did {
        MayMigrate(span) => Some((span.first - BASE, span.last + 1 - span.first)),
        _ => None,
    });
    let parts = [
        (0x3_0000, 2 * MIB - 0x3_0000),
        (2 * MIB, 2 * MIB),
        (4 * MIB, MIB),
        (5 * MIB, MIB),
        (6 * MIB, 2 * MIB),
        (8 * MIB, 0x4_0000),
    ];
    assert_eq!(asked.collect::<Vec<_>>(), parts);
    let drops: Vec<_> = script
        .did
        .iter()
        .filter_map(|did| match did {
            Drop(region) => Some((region.first(), region.outer())),
            _ => None,
        })
        .collect();
    let pages = [(48, 512), (0, 512), (0, 256), (0, 256), (0, 512), (0, 64)];
    assert_eq!(drops, pages);
    let ranges: Vec<_> = script
        .did
        .iter()
        .filter(|did| matches!(did, Range(..)))
        .collect();
    let last = end - 1;
    assert_eq!(
        ranges,
        [
            &Range(base, last),
            &Range(second, last),
            &Range(second + 3 * MIB, last)
        ]
    );
}

#[test]
fn what_is_untouched_or_must_stay_is_skipped() {
    let mut script = Script::new(8 * MIB);
    script.blocks = vec![(8, Is::Untouched), (10, Is::Pinned)];
    let (result, met) = script.whole(Mode::Eager);
    assert_eq!((result, met), (Ok(()), counts(2, 2, 0)));
    let locks: Vec<_> = script
        .states
        .iter()
        .map(|(at, _)| at / BLOCK_BYTES)
        .collect();
    assert_eq!(locks, [9, 11]);
}

/// Of a block that is covered in part, whole granules are discarded if no mapping is split.
#[test]
fn a_block_that_is_covered_in_part_counts_as_what_was_done() {
    for (from, to, mode, mapped_2m, met, pages) in [
        (0x1000, 0x2_f000, Mode::Lazy, true, counts(0, 0, 1), 16),
        (0x1000, 0x2_f000, Mode::Eager, false, counts(0, 0, 1), 16),
        (0x1000, 0x2_f000, Mode::Eager, true, counts(0, 1, 0), 0),
        (0x1_0000, 0x3_0000, Mode::Eager, false, counts(1, 0, 0), 32),
        (0x1000, 0x1_f000, Mode::Lazy, false, counts(0, 1, 0), 0),
    ] {
        let mut script = Script::new(2 * MIB);
        script.mapped_2m = mapped_2m;
        let (result, found) = script.run(BASE + from, to - from, mode);
        assert_eq!((result, found), (Ok(()), met), "{mode:?} {mapped_2m}");
        assert_eq!(script.discarded(BASE), pages);
        if pages == 0 {
            // Nothing is done, and no memory spent.
            assert_eq!(script.locked(), [Lock, Facts, Unlock]);
        }
    }
}

/// A policy for all but the first pages of 2 MiB splits the block there. Granules stay where a GPU's large pages are.
#[test]
fn granules_are_aligned_to_addresses_and_not_to_blocks() {
    const KIB: u64 = 1 << 10;
    for (start, from, to, met, first, outer) in [
        // Addresses in KiB behind `BASE`, and the pages of the block that are discarded.
        (4, 64, 128, counts(1, 0, 0), 15, 31),
        (4, 4, 128, counts(0, 0, 1), 15, 31),
        (4, 60, 196, counts(0, 0, 1), 15, 47),
        (4, 68, 128, counts(0, 1, 0), 0, 0),
        (4, 4, 2048, counts(1, 0, 0), 0, 511),
        (2044, 2044, 2048, counts(1, 0, 0), 0, 1),
    ] {
        for mode in [Mode::Eager, Mode::Lazy] {
            let start = BASE + start * KIB;
            let mut script = Script::new(2 * MIB);
            script.ranges = vec![span(start, BASE + 2 * MIB - start)];
            let (result, found) = script.run(BASE + from * KIB, (to - from) * KIB, mode);
            assert_eq!((result, found), (Ok(()), met), "{from} {mode:?}");
            let state = script.states.iter().find(|(at, _)| *at == start);
            let discarded = state.map_or(PageMask::EMPTY, |(_, state)| state.discarded());
            assert_eq!(discarded, mask(first, outer), "{from} {mode:?}");
        }
    }
}

/// A program may write behind an eager discard without a prefetch. Where the discard leaves a mapping it leaves no
/// clean dirty bit.
#[test]
fn what_an_eager_discard_leaves_alone_is_live_again() {
    for (from, mapped_2m, met, still) in [
        // Of the block nothing is discarded, as it has one mapping.
        (0, true, counts(0, 1, 0), 512 - 47),
        // One granule is, and less than one on either side is not.
        (0x1000, false, counts(0, 0, 1), 512 - 46 + 16),
    ] {
        let mut script = Script::new(2 * MIB);
        assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
        script.mapped_2m = mapped_2m;
        let (result, found) = script.run(BASE + from, 0x2_f000 - from, Mode::Eager);
        assert_eq!((result, found), (Ok(()), met), "{mapped_2m}");
        let state = &script.states[0].1;
        assert_eq!(script.discarded(BASE), still, "{mapped_2m}");
        assert_eq!(state.status(0x2e), Status::Live, "{mapped_2m}");
        assert_eq!(state.status(0x2f), Status::Lazy, "{mapped_2m}");
    }
    // A lazy discard leaves what was discarded before as it is.
    let mut script = Script::new(2 * MIB);
    assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
    assert_eq!(script.run(BASE, 0x1000, Mode::Lazy).0, Ok(()));
    assert_eq!(script.discarded(BASE), 512);
}

/// A range group whose migration is forbidden may cover a part of the block only, and pages beside it be discarded lazily
/// before: those are written behind the discard without a prefetch, too.
#[test]
fn what_must_stay_is_live_again_after_an_eager_discard() {
    for (mode, still, status) in [
        (Mode::Eager, 512 - 256, Status::Live),
        (Mode::Lazy, 512, Status::Lazy),
    ] {
        let mut script = Script::new(6 * MIB);
        // Nothing is kept for a block that was never discarded.
        script.blocks = vec![(9, Is::Untouched), (10, Is::Pinned)];
        assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
        script.blocks.extend([(8, Is::Pinned), (9, Is::Untouched)]);
        script.did.clear();
        let (result, met) = script.run(BASE, MIB, mode);
        assert_eq!((result, met), (Ok(()), counts(0, 1, 0)));
        let used = [Lock, Held(1), Requeue(1, Queue::Used), Held(2), Unlock];
        let locked = match mode {
            Mode::Eager => &used[..],
            Mode::Lazy => &[Lock, Unlock],
        };
        assert_eq!(script.locked(), locked);
        assert_eq!(script.tail(), [Close, Wait, Leave]);
        assert_eq!(script.discarded(BASE), still, "{mode:?}");
        let state = &script.states[0].1;
        assert_eq!((state.status(0), state.status(255)), (status, status));
        assert_eq!(state.status(256), Status::Lazy);
        let (result, met) = script.whole(mode);
        assert_eq!((result, met), (Ok(()), counts(0, 3, 0)));
        assert_eq!(script.states.len(), 1);
    }
}

/// A kernel without preemption has only rest() to let others run, and only a look at the signals
/// to end: the block that is skipped must not come past them.
#[test]
fn others_may_run_between_any_two_looks_at_a_block() {
    const BLOCKS: u64 = if cfg!(miri) { 30 } else { 3000 };
    for is in [Is::Untouched, Is::Pinned, Is::Plain] {
        let mut script = Script::new(BLOCKS * BLOCK_BYTES);
        let every_third = |third: u64| (third..BLOCKS).step_by(3);
        script.blocks = every_third(0).map(|i| (8 + i, Is::Untouched)).collect();
        script.blocks.extend(every_third(1).map(|i| (8 + i, is)));
        assert_eq!(script.whole(Mode::Lazy).0, Ok(()));
        let mut rested = false;
        let mut looks = 0;
        for did in &script.did {
            match did {
                Rest => rested = true,
                Block(_) => {
                    assert!(core::mem::take(&mut rested), "{is:?}");
                    looks += 1;
                }
                _ => {}
            }
        }
        assert_eq!(looks, BLOCKS);
        // A batch has a call for each of up to a million ranges, of a page each, perhaps.
        let mut script = Script::new(2 * MIB);
        script.blocks = vec![(8, is)];
        let _ = script.run(BASE + 0x5000, 0x1000, Mode::Lazy);
        assert_eq!(script.count(|did| *did == Rest), 1);
    }
}

#[test]
fn a_thread_that_is_to_die_ends_where_it_is() {
    for is in [Is::Untouched, Is::Pinned, Is::Plain] {
        let mut script = Script::new(64 * MIB);
        script.blocks = (8..40).map(|number| (number, is)).collect();
        script.dies_after = 3;
        let (result, met) = script.whole(Mode::Eager);
        assert_eq!(result, Err(Failure::Killed));
        assert_eq!(met.discarded + met.skipped, 3);
        assert_eq!(script.count(|did| matches!(did, Block(_))), 3);
        assert_eq!(script.tail(), [Close, Wait, Leave]);
    }
}
