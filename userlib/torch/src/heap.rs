// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Segments of memory, and the parts into which they are split. No calls of CUDA's.
//!
//! A request takes the smallest free part of its pool that is large enough, and leaves the
//! rest free; a part that becomes free is merged with free neighbours in its segment.
//!
//! What is discarded is a matter of UVM's blocks, not of parts: each block of a segment is
//! fresh, live or discarded ([`State`]), however the parts lie.

use core::ffi::c_int;
use std::collections::{BTreeMap, BTreeSet};

use uvmrust::Range;

use crate::device::Queue;
use crate::graphs::GraphPool;
use crate::sizes::{is_small, splits, BLOCK};

/// Whose memory it is: parts are never given from one pool to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pool {
    /// The stream in whose order the memory is used.
    pub queue: Queue,
    /// Whether the pool is for requests that [`is_small`].
    pub small: bool,
    /// Whether work that is launched later uses it.
    pub owner: Owner,
}

/// Who uses the memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Work in the pool's stream.
    Stream,
    /// The graphs that are captured with this pool of PyTorch's.
    Graph(GraphPool),
    /// Graphs of which nobody says when they go: what they have had is theirs for ever, so that
    /// what is free here was never given out.
    SomeGraph,
}

/// What a va_block of a segment holds, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing: no part of it was given out since it is here.
    Fresh,
    /// Perhaps data, on the GPU or elsewhere.
    Live,
    /// Nothing, and not to be used before it is prefetched.
    Discarded,
}

/// What CUDA gave in one piece.
#[derive(Debug)]
struct Segment {
    length: u64,
    pool: Pool,
    /// The states of the segment's va_blocks, from its start.
    states: Vec<State>,
}

/// A piece of a segment: the parts of one lie side by side, without gaps.
#[derive(Clone, Copy, Debug)]
struct Part {
    length: u64,
    segment: u64,
    free: bool,
}

/// All segments that are held, on all devices, by their addresses.
#[derive(Debug)]
pub(crate) struct Heap {
    segments: BTreeMap<u64, Segment>,
    parts: BTreeMap<u64, Part>,
    /// The free parts: length, then address, so that the first that fits is the smallest.
    free: BTreeMap<Pool, BTreeSet<(u64, u64)>>,
    /// Live blocks, by device.
    live: BTreeMap<c_int, u64>,
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            segments: BTreeMap::new(),
            parts: BTreeMap::new(),
            free: BTreeMap::new(),
            live: BTreeMap::new(),
        }
    }

    /// Takes over a segment, as one free part that nobody has had.
    pub(crate) fn add(&mut self, pool: Pool, base: u64, length: u64) {
        let blocks = length.div_ceil(BLOCK) as usize;
        let states = vec![State::Fresh; blocks];
        let segment = Segment {
            length,
            pool,
            states,
        };
        self.segments.insert(base, segment);
        let part = Part {
            length,
            segment: base,
            free: true,
        };
        self.parts.insert(base, part);
        self.free.entry(pool).or_default().insert((length, base));
    }

    /// The smallest free part of a pool for `length` bytes; with `no_prefetch`, of those in
    /// which they need none.
    pub(crate) fn find(&self, pool: Pool, length: u64, no_prefetch: bool) -> Option<u64> {
        let fits = self.free.get(&pool)?.range((length, 0)..);
        let ready = |base| !no_prefetch || self.to_prefetch(Range { base, length }).is_empty();
        fits.map(|&(_, base)| base).find(|&base| ready(base))
    }

    /// Takes the first `length` bytes, or a little more, of the free part at `base`, which has
    /// as many. Its blocks become live: those that are discarded are to be prefetched before.
    pub(crate) fn take(&mut self, base: u64, length: u64) {
        let Some((pool, mut part)) = self.remove_free(base) else {
            return;
        };
        let rest = part.length - length;
        if splits(pool.small, rest) {
            part.length = length;
            let left = Part {
                length: rest,
                ..part
            };
            self.insert_free(pool, base + length, left);
        }
        let taken = Part {
            free: false,
            ..part
        };
        self.parts.insert(base, taken);
        self.set(base, part.length, State::Live);
    }

    /// Makes the part at `base`, which is taken, free, and merges it with its neighbours.
    /// Gives the free part that it is now in.
    pub(crate) fn give(&mut self, base: u64) -> Option<Range> {
        let mut part = self.parts.remove(&base)?;
        let pool = self.segments.get(&part.segment)?.pool;
        let mut at = base;
        let after = self.parts.range(base..).next();
        if let Some((&next, _)) = after.filter(|(_, next)| joins(next, &part)) {
            let (_, next) = self.remove_free(next)?;
            part.length += next.length;
        }
        let before = self.parts.range(..base).next_back();
        if let Some((&previous, _)) = before.filter(|(_, previous)| joins(previous, &part)) {
            let (_, previous_part) = self.remove_free(previous)?;
            part.length += previous_part.length;
            at = previous;
        }
        part.free = true;
        self.insert_free(pool, at, part);
        let length = part.length;
        Some(Range { base: at, length })
    }

    fn insert_free(&mut self, pool: Pool, base: u64, part: Part) {
        self.parts.insert(base, part);
        let free = self.free.entry(pool).or_default();
        free.insert((part.length, base));
    }

    fn remove_free(&mut self, base: u64) -> Option<(Pool, Part)> {
        let part = *self.parts.get(&base).filter(|part| part.free)?;
        let pool = self.segments.get(&part.segment)?.pool;
        self.parts.remove(&base);
        if let Some(free) = self.free.get_mut(&pool) {
            free.remove(&(part.length, base));
            if free.is_empty() {
                self.free.remove(&pool);
            }
        }
        Some((pool, part))
    }

    /// The pool and the bytes of the part at `base`, if it is taken.
    pub(crate) fn taken(&self, base: u64) -> Option<(Pool, u64)> {
        let part = self.parts.get(&base).filter(|part| !part.free)?;
        let pool = self.segments.get(&part.segment)?.pool;
        Some((pool, part.length))
    }

    /// Whether an owner has segments on a device.
    pub(crate) fn has(&self, device: c_int, owner: Owner) -> bool {
        let its = |pool: Pool| pool.queue.device == device && pool.owner == owner;
        self.segments.values().any(|segment| its(segment.pool))
    }

    /// The segments of which no part is taken, with their pools.
    pub(crate) fn idle(&self) -> Vec<(Range, Pool)> {
        let whole = |(&base, segment): (&u64, &Segment)| {
            let part = self.parts.get(&base)?;
            let idle = part.free && part.length == segment.length;
            let length = segment.length;
            idle.then_some((Range { base, length }, segment.pool))
        };
        self.segments.iter().filter_map(whole).collect()
    }

    /// Keeps an idle segment from being given out, until [`Heap::give`].
    pub(crate) fn reserve(&mut self, base: u64) {
        if let Some((_, part)) = self.remove_free(base) {
            let free = false;
            self.parts.insert(base, Part { free, ..part });
        }
    }

    /// Gives up a segment that was idle.
    pub(crate) fn remove(&mut self, base: u64) {
        let length = self.segments.get(&base).map_or(0, |segment| segment.length);
        self.set(base, length, State::Fresh);
        self.remove_free(base);
        self.parts.remove(&base);
        self.segments.remove(&base);
    }

    /// All free parts of pools that streams use, on a device, with their pools.
    pub(crate) fn free_parts(&self, device: c_int) -> Vec<(Range, Pool)> {
        let of_stream = |pool: &Pool| pool.owner == Owner::Stream && pool.queue.device == device;
        let pools = self.free.iter().filter(|(pool, _)| of_stream(pool));
        let ranges = pools.flat_map(|(pool, parts)| {
            let range = |&(length, base): &(u64, u64)| (Range { base, length }, *pool);
            parts.iter().map(range)
        });
        ranges.collect()
    }

    /// The free parts of a pool that begin between two addresses.
    pub(crate) fn free_between(&self, pool: Pool, from: u64, to: u64) -> Vec<Range> {
        let its = self.parts.range(from..to).filter(|(_, part)| {
            let of = self.segments.get(&part.segment).map(|segment| segment.pool);
            part.free && of == Some(pool)
        });
        let range = |(&base, part): (&u64, &Part)| Range {
            base,
            length: part.length,
        };
        its.map(range).collect()
    }

    /// The live blocks that lie within a free part as a whole, as few ranges.
    pub(crate) fn to_discard(&self, part: Range) -> Vec<Range> {
        self.runs(part, true, State::Live)
    }

    /// The discarded blocks of which some of the bytes are part, as few ranges.
    pub(crate) fn to_prefetch(&self, part: Range) -> Vec<Range> {
        self.runs(part, false, State::Discarded)
    }

    /// The blocks that lie in a part as a whole, as one range, which may be empty.
    pub(crate) fn whole_blocks(&self, part: Range) -> Range {
        let end = part.base + part.length;
        let none = Range {
            base: end,
            length: 0,
        };
        let Some((segment, _)) = self.segment_at(part.base) else {
            return none;
        };
        let from = segment + (part.base - segment).next_multiple_of(BLOCK);
        let to = segment + (end - segment) / BLOCK * BLOCK;
        if from >= to {
            return none;
        }
        Range {
            base: from,
            length: to - from,
        }
    }

    /// The blocks that bytes of one segment are part of, as one range.
    pub(crate) fn blocks_of(&self, from: u64, to: u64) -> Range {
        let segment = self.segment_at(from).map_or(from, |(segment, _)| segment);
        let base = from - (from - segment) % BLOCK;
        let length = (to - base).next_multiple_of(BLOCK);
        Range { base, length }
    }

    /// Blocks of [`Heap::to_discard`], or of [`Heap::whole_blocks`], were.
    pub(crate) fn discarded(&mut self, range: Range) {
        self.set(range.base, range.length, State::Discarded);
    }

    /// Bytes of the blocks of a device that may hold data.
    pub(crate) fn live(&self, device: c_int) -> u64 {
        self.live.get(&device).map_or(0, |blocks| blocks * BLOCK)
    }

    /// The segment that an address is in.
    fn segment_at(&self, address: u64) -> Option<(u64, &Segment)> {
        let (&base, segment) = self.segments.range(..=address).next_back()?;
        (address < base + segment.length).then_some((base, segment))
    }

    /// The blocks of a state in a range of one segment, `whole`: only those that lie in it
    /// with all their bytes.
    fn runs(&self, part: Range, whole: bool, state: State) -> Vec<Range> {
        let Some((base, segment)) = self.segment_at(part.base) else {
            return Vec::new();
        };
        let (from, to) = (part.base - base, part.base - base + part.length);
        let first = if whole {
            from.div_ceil(BLOCK)
        } else {
            from / BLOCK
        };
        let end = if whole {
            to / BLOCK
        } else {
            to.div_ceil(BLOCK)
        };
        let mut runs: Vec<Range> = Vec::new();
        for block in first..end {
            if segment.states.get(block as usize) != Some(&state) {
                continue;
            }
            let start = base + block * BLOCK;
            let length = BLOCK.min(segment.length - block * BLOCK);
            match runs.last_mut() {
                Some(last) if last.base + last.length == start => last.length += length,
                _ => runs.push(Range {
                    base: start,
                    length,
                }),
            }
        }
        runs
    }

    /// Sets the state of the blocks that are in a range, in part or as a whole.
    fn set(&mut self, from: u64, length: u64, state: State) {
        let Some((base, _)) = self.segment_at(from) else {
            return;
        };
        let Some(segment) = self.segments.get_mut(&base) else {
            return;
        };
        let live = self.live.entry(segment.pool.queue.device).or_default();
        let (first, end) = (
            (from - base) / BLOCK,
            (from - base + length).div_ceil(BLOCK),
        );
        for block in first as usize..end as usize {
            let Some(now) = segment.states.get_mut(block) else {
                continue;
            };
            *live -= u64::from(*now == State::Live);
            *now = state;
            *live += u64::from(state == State::Live);
        }
    }
}

/// Whether a neighbour of a part that becomes free is merged with it.
fn joins(neighbour: &Part, part: &Part) -> bool {
    neighbour.free && neighbour.segment == part.segment
}

/// The pool that a request of so many bytes is for.
pub(crate) fn pool_for(queue: Queue, length: u64, owner: Owner) -> Pool {
    Pool {
        queue,
        small: is_small(length),
        owner,
    }
}
