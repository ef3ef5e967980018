// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The walk on a VA space of several va_blocks with every page's content, under every place where
//! a call of the machine's can fail.

use super::super::*;
use super::sim::{Sim, CPU, GPU_A, GPU_B, LEN};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The blocks, in the order of their addresses: the end of one range, a range of a whole block
/// and a short one, and one more range that shares the latter's 2 MiB.
const PAGES_OF: [u16; 4] = [LEN, 512, LEN, LEN];
/// The last block of each range.
const RANGES: [(usize, usize); 3] = [(0, 0), (1, 2), (3, 3)];
const BLOCKS: usize = PAGES_OF.len();

/// The first page of a block, counted from the first of all.
fn first_page(block: usize) -> u64 {
    PAGES_OF[..block].iter().map(|n| u64::from(*n)).sum()
}

/// Where the pages begin: `LEN` of them before a multiple of 2 MiB.
const BASE: u64 = 8 * BLOCK_BYTES - LEN as u64 * PAGE_BYTES;

fn address(page: u64) -> u64 {
    BASE + page * PAGE_BYTES
}

/// What the machine is asked that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallible {
    Open,
    Keep,
    Drop,
    NoteWork,
    Wait,
    /// A look at the signals that finds one.
    Signal,
}

struct Block {
    sim: Sim,
    touched: bool,
    pinned: bool,
    mapped_2m: bool,
    /// Pages whose memory on the host somebody holds, and writes to without a mapping.
    held: PageMask,
    /// The GPUs have not unmapped yet what they were told to.
    pending: bool,
}

impl Block {
    /// What an eager discard leaves alone.
    fn pinned(&self) -> PageMask {
        self.sim.resident_on(CPU) & self.held
    }

    /// Who holds pages writes to them.
    fn io(&mut self) {
        for page in self.held.pages() {
            self.sim.write_held(page);
        }
    }

    /// docs/uapi.md, "Reclaim": where the chunks of block `b` go after a discard of `done`, by which `revived` are live.
    fn should_requeue(
        &self,
        b: usize,
        done: PageMask,
        revived: PageMask,
    ) -> Vec<(usize, usize, Queue)> {
        let gpus = [GPU_A, GPU_B].into_iter();
        let moved = gpus.filter_map(|p| {
            let state = self.sim.state.as_ref()?;
            if self.sim.len != 512 || !self.sim.has_chunk(p) {
                return None;
            }
            let there = self.sim.resident_on(p);
            let prepared = state.prepared_in(Memory(p as u16));
            if there.intersects(&revived) {
                Some((b, p, Queue::Used))
            } else if !there.is_subset(&state.discarded()) || done.is_empty() {
                None
            } else {
                // What is discarded lazily is where it is resident, and nowhere else.
                let eager = state.discarded() - lazy(state);
                let holds = !there.is_empty() || eager.intersects(&prepared);
                holds.then_some((b, p, Queue::Discarded))
            }
        });
        moved.collect()
    }
}

/// The VA space, and a call.
struct World {
    blocks: Vec<Block>,
    /// Where the call is.
    entered: bool,
    open: bool,
    range: Option<usize>,
    at: Option<usize>,
    locked: bool,
    noted: Vec<usize>,
    /// The root chunks that the call has moved: block, memory, and where to.
    requeued: Vec<(usize, usize, Queue)>,
    waited: bool,
    rested: bool,
    /// The calls that can fail so far; which of them does, and then in which block it was.
    asked: usize,
    fails: Option<usize>,
    failed: Option<(Fallible, usize)>,
    /// The drops that end in `Again`, counted from the last bit.
    again: u32,
}

#[derive(Clone, Debug)]
enum Op {
    Access(usize, usize, u16, bool),
    Migrate(usize, usize, u16, u16),
    Evict(usize, usize),
    Discard(u64, u64, bool),
    /// Whether the block may migrate changes.
    Pin(usize),
    /// Somebody takes hold of a page, or lets all go that is held of the block.
    Hold(usize, u16, bool),
    /// Who holds pages of the block writes to them.
    Io(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let pages = first_page(BLOCKS);
    prop_oneof![
        6 => (0..BLOCKS, 0..3usize, 0..512u16, any::<bool>())
            .prop_map(|(b, p, page, write)| Op::Access(b, p, page, write)),
        3 => (0..BLOCKS, 0..3usize, 0..512u16, 0..512u16)
            .prop_map(|(b, p, from, to)| Op::Migrate(b, p, from, to)),
        1 => (0..BLOCKS, 1..3usize).prop_map(|(b, p)| Op::Evict(b, p)),
        2 => part(pages).prop_map(|(from, to, eager)| Op::Discard(from, to, eager)),
        1 => (0..BLOCKS).prop_map(Op::Pin),
        2 => (0..BLOCKS, 0..512u16, prop::bool::weighted(0.7))
            .prop_map(|(b, page, takes)| Op::Hold(b, page, takes)),
        2 => (0..BLOCKS).prop_map(Op::Io),
    ]
}

/// What a state says is discarded lazily.
fn lazy(state: &BlockState) -> PageMask {
    let mut mask = PageMask::EMPTY;
    for page in (0..512).filter(|page| state.status(*page) == Status::Lazy) {
        mask.set(page);
    }
    mask
}

/// Pages of the VA space, all of them often, and a mode.
fn part(pages: u64) -> impl Strategy<Value = (u64, u64, bool)> {
    let edge = prop_oneof![
        0..pages,
        Just(first_page(1)),
        Just(first_page(2)),
        Just(first_page(3)),
        Just(first_page(1) + 16),
    ];
    let some = (edge.clone(), edge)
        .prop_map(|(a, b)| (a.min(b), a.max(b) + 1))
        .prop_map(move |(a, b)| (a, b.min(pages)));
    (prop_oneof![some, Just((0, pages))], any::<bool>()).prop_map(|((a, b), e)| (a, b, e))
}

impl World {
    fn new(pinned: u8, mapped_2m: bool) -> Self {
        let block = |b: usize| Block {
            sim: Sim::with_pages(PAGES_OF[b], true),
            touched: false,
            pinned: pinned & 1 << b != 0,
            mapped_2m: mapped_2m && PAGES_OF[b] == 512,
            held: PageMask::EMPTY,
            pending: false,
        };
        Self {
            blocks: (0..BLOCKS).map(block).collect(),
            entered: false,
            open: false,
            range: None,
            at: None,
            locked: false,
            noted: Vec::new(),
            requeued: Vec::new(),
            waited: false,
            rested: false,
            asked: 0,
            fails: None,
            failed: None,
            again: 0,
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Access(b, p, page, write) => {
                let block = &mut self.blocks[b];
                block.touched = true;
                block.sim.access(p, page % PAGES_OF[b], write, 0);
            }
            Op::Migrate(b, p, from, to) => {
                let block = &mut self.blocks[b];
                block.touched = true;
                let to = to % PAGES_OF[b] + 1;
                block.sim.migrate(p, (from % PAGES_OF[b]).min(to)..to);
            }
            Op::Evict(b, p) => self.blocks[b].sim.evict(p),
            Op::Discard(from, to, eager) => self.discard(from, to, mode(eager)).expect("no error"),
            Op::Pin(b) => self.blocks[b].pinned ^= true,
            Op::Hold(b, _, false) => self.blocks[b].held = PageMask::EMPTY,
            // Who takes hold of a page faults it in, as one who writes to it.
            Op::Hold(b, page, true) => {
                let block = &mut self.blocks[b];
                block.touched = true;
                block.sim.access(CPU, page % PAGES_OF[b], true, 0);
                block.held.set(page % PAGES_OF[b]);
            }
            Op::Io(b) => self.blocks[b].io(),
        }
    }

    /// Discards pages, and looks whether what was done is what was to be done.
    fn discard(&mut self, from: u64, to: u64, mode: Mode) -> Result<(), Failure<Fallible>> {
        const SHIFT: u32 = 2;
        let before: Vec<_> = (self.blocks.iter())
            .map(|b| {
                let state = b.sim.state.as_ref();
                let all = state.map_or(PageMask::EMPTY, BlockState::discarded);
                (all, state.map_or(PageMask::EMPTY, lazy), b.pinned())
            })
            .collect();
        (self.range, self.at, self.waited) = (None, None, false);
        self.noted.clear();
        self.requeued.clear();
        let mut counts = Counts::default();
        let request = Request {
            base: address(from),
            length: (to - from) * PAGE_BYTES,
            mode,
            granule_shift: SHIFT,
        };
        let result = discard(self, &request, &mut counts);
        assert!(!self.entered && !self.open && !self.locked && self.waited);
        // As the documentation has it, and not as the plan does.
        let mut expected = Counts::default();
        let mut requeued = Vec::new();
        for b in 0..BLOCKS {
            let first = first_page(b);
            let inside = |page: u64| page.clamp(first, first + u64::from(PAGES_OF[b])) - first;
            let (cut, end) = (inside(from) as u16, inside(to) as u16);
            let met = cut < end && self.failed.is_none_or(|(what, at)| met(what, at, b));
            let (mut done, mut asked) = (PageMask::EMPTY, PageMask::EMPTY);
            let block = &mut self.blocks[b];
            let (all, lazy, pinned) = before[b];
            if met && block.touched {
                asked = Region::new(cut, end).into();
                if !block.pinned {
                    done = should_discard(PAGES_OF[b], cut, end, mode, block.mapped_2m, SHIFT);
                    done = match mode {
                        Mode::Lazy => done,
                        Mode::Eager if block.mapped_2m && done.intersects(&pinned) => {
                            PageMask::EMPTY
                        }
                        Mode::Eager => done - pinned,
                    };
                }
            }
            if met {
                match (done.count(), end - cut) {
                    (0, _) => expected.skipped += 1,
                    (n, all) if n == all => expected.discarded += 1,
                    _ => expected.partial += 1,
                }
            }
            block.sim.forget(done);
            block.sim.check_invariants();
            let state = block.sim.state.as_ref();
            let now = state.map_or(PageMask::EMPTY, BlockState::discarded);
            let live = match mode {
                Mode::Eager => lazy & asked,
                Mode::Lazy => PageMask::EMPTY,
            };
            assert_eq!(now, (all - live) | done, "block {b}");
            requeued.extend(block.should_requeue(b, done, live - done));
            if mode == Mode::Eager && !done.is_empty() {
                assert!(!block.sim.maps(done), "block {b} is mapped");
                let in_vain = matches!(self.failed, Some((Fallible::NoteWork | Fallible::Wait, _)));
                assert!(in_vain || !block.pending, "block {b} was not waited for");
            }
        }
        assert_eq!(counts, expected);
        assert_eq!(self.requeued, requeued);
        result
    }

    fn may_fail(&mut self, what: Fallible) -> Result<(), Fallible> {
        self.asked += 1;
        if self.fails != Some(self.asked - 1) {
            return Ok(());
        }
        let at = match what {
            // Before the block behind the one that was looked at last.
            Fallible::Signal => self.at.map_or(0, |at| at + 1),
            _ => self.at.unwrap_or(0),
        };
        self.failed = Some((what, at));
        Err(what)
    }

    fn here(&mut self) -> &mut Block {
        assert!(self.locked);
        &mut self.blocks[self.at.expect("no block")]
    }

    /// All processors read: what they may see is seen, and nothing else.
    fn read_all(&mut self) {
        for (b, block) in self.blocks.iter_mut().enumerate() {
            block.io();
            for page in (0..PAGES_OF[b]).step_by(if PAGES_OF[b] == 512 { 7 } else { 1 }) {
                for p in [CPU, GPU_A, GPU_B] {
                    block.sim.access(p, page, false, 0);
                }
            }
            assert!(!block.sim.leaked, "block {b} has given foreign data away");
            assert!(!block.sim.wrong, "block {b} has lost a write");
            block.sim.check_invariants();
        }
    }
}

/// Whether block `b` was discarded although `what` failed in block `at`, or before it.
fn met(what: Fallible, at: usize, b: usize) -> bool {
    match what {
        Fallible::Open => false,
        Fallible::Wait => true,
        Fallible::NoteWork => b <= at,
        Fallible::Keep | Fallible::Drop | Fallible::Signal => b < at,
    }
}

/// docs/uapi.md, "Which part of a range".
fn should_discard(pages: u16, cut: u16, end: u16, mode: Mode, mapped_2m: bool, s: u32) -> PageMask {
    let mut done = PageMask::EMPTY;
    if cut == 0 && end == pages {
        done.fill(Region::new(0, pages));
    } else if mode == Mode::Lazy || !mapped_2m {
        for granule in 0..512u16 >> s {
            let (first, outer) = (granule << s, (granule + 1) << s);
            if cut <= first && outer <= end {
                done.fill(Region::new(first, outer));
            }
        }
    }
    done
}

fn mode(eager: bool) -> Mode {
    if eager {
        Mode::Eager
    } else {
        Mode::Lazy
    }
}

impl Machine for World {
    type Error = Fallible;
    const CHECKS: bool = true;

    fn broken(&mut self, invariant: &'static str) {
        panic!("{invariant}");
    }

    fn enter(&mut self) {
        assert!(!self.entered);
        self.entered = true;
    }

    fn leave(&mut self) {
        assert!(self.entered && !self.open && self.waited);
        self.entered = false;
    }

    fn has_non_faultable(&mut self) -> bool {
        assert!(self.entered);
        false
    }

    fn kind(&mut self, _: Span) -> Kind {
        assert!(self.entered);
        Kind::Managed
    }

    fn open(&mut self) -> Result<(), Fallible> {
        assert!(self.entered && !self.open);
        self.may_fail(Fallible::Open)?;
        self.open = true;
        Ok(())
    }

    fn close(&mut self) {
        assert!(self.open && !self.locked);
        self.open = false;
    }

    fn wait(&mut self) -> Result<(), Fallible> {
        assert!(self.entered && !self.open && !self.waited);
        self.waited = true;
        self.may_fail(Fallible::Wait)?;
        for b in core::mem::take(&mut self.noted) {
            self.blocks[b].pending = false;
        }
        Ok(())
    }

    fn range(&mut self, at: u64, last: u64) -> Option<Span> {
        assert!(self.open && !self.locked);
        let span = |r: usize| Span {
            first: address(first_page(RANGES[r].0)),
            last: address(first_page(RANGES[r].1 + 1)) - 1,
        };
        let found = match self.range {
            None => (0..RANGES.len()).find(|r| span(*r).last >= at)?,
            Some(r) => r + 1,
        };
        let range = (found < RANGES.len()).then(|| span(found))?;
        assert!(self.range.is_none() || range.first == at);
        self.range = Some(found);
        (range.first <= last).then_some(range)
    }

    fn rest(&mut self) {
        assert!(!self.locked);
        self.rested = true;
    }

    fn dying(&mut self) -> bool {
        self.may_fail(Fallible::Signal).is_err()
    }

    fn block(&mut self, at: u64) -> Option<Span> {
        assert!(self.open && !self.locked && core::mem::take(&mut self.rested));
        let span = |b: usize| Span {
            first: address(first_page(b)),
            last: address(first_page(b + 1)) - 1,
        };
        let b = (0..BLOCKS).find(|b| span(*b).last >= at).expect("no block");
        let (first, last) = RANGES[self.range.expect("no range")];
        assert!(first <= b && b <= last, "not of the range");
        self.at = Some(b);
        self.blocks[b].touched.then(|| span(b))
    }

    fn may_migrate(&mut self, _: Span) -> bool {
        !self.blocks[self.at.expect("no block")].pinned
    }

    fn lock(&mut self) {
        assert!(self.open && !self.locked);
        self.locked = true;
    }

    fn unlock(&mut self) {
        // What the next one finds who has the lock.
        self.here().sim.check_invariants();
        self.locked = false;
    }

    fn facts(&mut self) -> Facts {
        let block = self.here();
        Facts {
            resident: block.sim.resident(),
            mapped_2m: block.mapped_2m,
        }
    }

    fn pinned(&mut self, pages: &PageMask) -> PageMask {
        let block = self.here();
        assert!(pages.is_subset(&block.sim.resident()));
        block.pinned() & *pages
    }

    fn state(&mut self) -> Option<&mut BlockState> {
        self.here().sim.state.as_mut()
    }

    fn keep(&mut self, state: BlockState) -> Result<(), crate::mem::OutOfMemory> {
        self.may_fail(Fallible::Keep)
            .map_err(|_| crate::mem::OutOfMemory)?;
        assert!(self.here().sim.state.is_none());
        self.here().sim.state = Some(state);
        Ok(())
    }

    fn held(&mut self, from: Memory) -> Option<Held> {
        let p = usize::from(from.0);
        let block = self.here();
        (p < 3).then(|| Held {
            memory: from,
            resident: block.sim.resident_on(p),
            one_place: true,
            root_chunk: p != CPU && block.sim.len == 512 && block.sim.has_chunk(p),
        })
    }

    fn drop_pages(&mut self, pages: &PageMask) -> Result<Dropped, Fallible> {
        let failed = self.may_fail(Fallible::Drop);
        let again = self.again & 1 != 0;
        self.again >>= 1;
        let block = self.here();
        let eager = |s: &BlockState| pages.pages().any(|p| s.status(p) == Status::Eager);
        assert!(
            !block.sim.state.as_ref().is_some_and(eager),
            "recorded before it was done"
        );
        block.pending = true;
        if failed.is_err() || again {
            // Half-way: some mappings are gone.
            let some = pages.pages().filter(|p| p % 3 != 0);
            block.sim.unmap(some.fold(PageMask::EMPTY, |mut m, p| {
                m.set(p);
                m
            }));
            failed?;
            return Ok(Dropped::Again);
        }
        block.sim.drop_everywhere(*pages);
        Ok(Dropped::All)
    }

    fn forget_thrashing(&mut self, pages: &PageMask) {
        assert!(!self.here().sim.resident().intersects(pages));
    }

    fn forget_stored(&mut self, pages: &PageMask) {
        let state = self.here().sim.state.as_ref().expect("no state");
        assert!(pages.is_subset(&state.discarded()));
    }

    /// The reclaim of what is discarded must cost no copy.
    fn requeue(&mut self, memory: Memory, queue: Queue) {
        let (sim, p) = (&self.here().sim, usize::from(memory.0));
        let state = sim.state.as_ref().expect("no state");
        let live = PageMask::FULL - state.discarded();
        assert!(sim.has_chunk(p));
        let is_used = sim.resident_on(p).intersects(&live);
        assert_eq!(is_used, queue == Queue::Used);
        self.requeued.push((self.at.expect("no block"), p, queue));
    }

    fn note_work(&mut self) -> Result<(), Fallible> {
        self.may_fail(Fallible::NoteWork)?;
        let at = self.at.expect("no block");
        self.noted.push(at);
        Ok(())
    }
}

/// A VA space with a history, and a discard of it in which call number `fails` does.
fn attempt(
    (pinned, mapped_2m): (u8, bool),
    ops: &[Op],
    (from, to, eager): (u64, u64, bool),
    again: u32,
    fails: Option<usize>,
) -> (World, Result<(), Failure<Fallible>>) {
    let mut world = World::new(pinned, mapped_2m);
    ops.iter().for_each(|op| world.run(op));
    (world.asked, world.fails, world.again) = (0, fails, again);
    let result = world.discard(from, to, mode(eager));
    (world, result)
}

proptest! {
    #![proptest_config(crate::testing::model(48))]

    /// Wherever a discard fails, what was discarded before stays so, all else is as it was, all
    /// locks are let go, and nobody ever reads what is not his.
    #[test]
    fn a_discard_may_fail_anywhere(
        space in (0..16u8, any::<bool>()).prop_map(|(bits, m)| (if bits > 7 { 0 } else { bits }, m)),
        ops in prop::collection::vec(op(), 1..crate::testing::steps(40)),
        what in part(first_page(BLOCKS)),
        again in any::<u32>().prop_map(|bits| bits & 0x25),
    ) {
        let (mut world, result) = attempt(space, &ops, what, again, None);
        prop_assert_eq!(result, Ok(()));
        world.read_all();
        for fails in 0..world.asked {
            let (mut world, result) = attempt(space, &ops, what, again, Some(fails));
            let (failed, _) = world.failed.expect("nothing failed");
            let expected = match failed {
                Fallible::Signal => Failure::Killed,
                Fallible::Keep => Failure::NoMemory,
                _ => Failure::Machine(failed),
            };
            prop_assert_eq!(result, Err(expected));
            // And again, with nothing in the way, after what was read or was not.
            if fails % 2 == 0 {
                world.read_all();
            }
            (world.fails, world.failed) = (None, None);
            prop_assert_eq!(world.discard(what.0, what.1, mode(what.2)), Ok(()));
            world.read_all();
        }
    }
}

/// And that it looks where the chunk of a block goes that is live again, in a history that is seldom drawn.
#[test]
fn the_model_meets_a_chunk_that_is_used_again() {
    let whole = (0, first_page(BLOCKS), true);
    let lazily = Op::Discard(whole.0, whole.1, false);
    let ops = [Op::Migrate(1, GPU_A, 0, 511), lazily, Op::Pin(1)];
    let (world, result) = attempt((0, false), &ops, whole, 0, None);
    assert_eq!(result, Ok(()));
    assert_eq!(world.requeued, [(1, GPU_A, Queue::Used)]);
}

/// That the model looks: each of these histories reaches what the test above is about.
#[test]
fn the_model_meets_what_it_is_about() {
    let whole = (0, first_page(BLOCKS), true);
    let ops: Vec<_> = (0..BLOCKS).map(|b| Op::Migrate(b, GPU_A, 0, 511)).collect();
    let (world, result) = attempt((0, false), &ops, whole, 0, None);
    assert_eq!(result, Ok(()));
    // Open, wait, and for each block a look at the signals, its state, its drop, its work.
    assert_eq!(world.asked, 2 + 4 * BLOCKS);
    let failed: Vec<_> = (0..world.asked)
        .map(|fails| attempt((0, false), &ops, whole, 0, Some(fails)).0.failed)
        .collect();
    let mut all = vec![Some((Fallible::Open, 0))];
    for b in 0..BLOCKS {
        use Fallible::*;
        all.extend([Signal, Keep, Drop, NoteWork].map(|what| Some((what, b))));
    }
    all.push(Some((Fallible::Wait, BLOCKS - 1)));
    assert_eq!(failed, all);
}

/// A page of a GPU's went to the host, and is discarded lazily there: the chunk that it leaves behind is unused.
#[test]
fn a_chunk_of_what_is_discarded_lazily_elsewhere_is_not_moved() {
    let ops = [
        Op::Migrate(1, GPU_A, 38, 38),
        Op::Discard(0, 20, false),
        Op::Migrate(1, CPU, 0, 38),
    ];
    let (world, result) = attempt((4, false), &ops, (16, 56, false), 0, None);
    assert_eq!(result, Ok(()));
    assert!(world.requeued.is_empty(), "{:?}", world.requeued);
}
