// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which used chunk is evicted: policies, one of which is chosen by its name.
//!
//! Chunks that are free, unused or discarded go first under each policy, as their eviction moves no
//! bytes. A policy chooses among the used ones, when there is nothing else. In the driver
//! `uvm_rust_evict_policy` names it when the module is loaded, in uvmsim `--evict-policy`.
//!
//! A new policy is a file below `policies/` with an implementation of [`Policy`], two lines here, and
//! its name in the parameter's help; docs/your-first-policy.md goes through it.

mod fair;
mod lru;
mod mru;
mod turns;

use super::lows::{InOrder, Unprotected};
use super::roots::RootChunks;
use super::{Chunk, Holder, Queue};
use crate::mem::OutOfMemory;
use core::iter::Take;

/// How many used chunks are looked at, at most, each time that one is chosen.
pub(super) const REACH: usize = 64;

/// How many blocks a process may need at once: 64 for one instruction of a warp, whose 32 lanes access two blocks each,
/// and 256 for a batch of faults of upstream's default size.
const AT_ONCE: u32 = 64 + 256;

/// How many chunks a process needs on a GPU of `chunks` chunks for its kernels to get on beside other processes. On a
/// small GPU the number is an eighth of the chunks, as otherwise no process would have more than it.
pub fn spared(chunks: u32) -> u32 {
    AT_ONCE.min(chunks / 8)
}

/// A policy, for the chunks of one GPU.
///
/// Locking: the caller serialises all calls; in the driver it holds `pmm->list_lock`, a spinlock. So
/// only [`Policy::new`] allocates, and the others take constant time.
pub trait Policy: Sized {
    /// The name by which the policy is chosen: lower case, without spaces.
    const NAME: &'static str;

    /// Where all used chunks may go, the policy chooses the oldest, unless that is [`Standing::Running`] or
    /// [`Standing::Expected`].
    const OLDEST_UNLESS_NEEDED: bool = false;

    /// Makes the policy for chunks 0 to `chunks` - 1, none of which is used yet.
    fn new(chunks: u32) -> Result<Self, OutOfMemory>;

    /// Pages of `chunk` were populated or migrated, or it may be evicted again after a va_block has
    /// worked on it. The chunk is the newest of the used ones now, and is `holder`'s; 0 stands for several
    /// processes, or nobody. The driver does not see accesses that do not fault.
    fn used(&mut self, chunk: Chunk, holder: Holder) {
        let _ = (chunk, holder);
    }

    /// `chunk` is not one of the used ones any more: it is being evicted, worked on, freed, or all that
    /// it holds is discarded.
    fn left(&mut self, chunk: Chunk) {
        let _ = chunk;
    }

    /// `holder` announces a kernel, which is about to run, or, without `kernel`, that no known one follows. Returns whether
    /// others have had the GPU since its last one, so that what the prefetcher has seen there may be gone.
    fn begins(&mut self, holder: Holder, kernel: bool) -> bool {
        let _ = (holder, kernel);
        false
    }

    /// Memory comes to the GPU for `holder`: its kernels fault on it, or it asks for it. Of memory that the prefetcher
    /// brings this is told too, and after that the same with `predicted`.
    fn brings(&mut self, holder: Holder, predicted: bool) {
        let _ = (holder, predicted);
    }

    /// The prefetcher has marked `chunk`, which may be used, as expected by a kernel of its process.
    fn expected(&mut self, chunk: Chunk) {
        let _ = chunk;
    }

    /// Whether the used `chunk`, which goes first, may go for a block that a kernel of `holder` is predicted to access,
    /// which is `ahead` kernels after the current one. If the policy does not say, it may unless it is expected itself.
    fn may_bring(&self, holder: Holder, ahead: u32, chunk: Chunk) -> Option<bool> {
        let _ = (holder, ahead, chunk);
        None
    }

    /// The chunk to evict next. The caller evicts the oldest where the answer is none of `used`, and
    /// asks again, and expects the same answer, until the chunk is evicted.
    fn choose(&self, used: Used<'_>) -> Option<Chunk>;
}

/// What is known of who needs a used chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody expects the chunk. Its process announces kernels, and has begun another kernel since it last asked for
    /// the chunk.
    Over,
    /// The chunk's process announces no kernels. Or the running kernel has asked for the chunk, and has since had room
    /// for as much as the GPU can give it at once.
    Unknown,
    /// A kernel expects the chunk: the one that is so many kernels ahead, where 0 is the running one.
    Expected(u32),
    /// The running kernel has asked for the chunk, by a fault or a migration, and may not have had room yet for all
    /// that it needs at once.
    Running,
}

/// The first of `chunks` that is neither expected nor a running kernel's. If all are, the one that is needed
/// last is chosen, because a fault must be served now; the oldest would be the one that was prefetched first and
/// is needed next. A chunk that a running kernel has asked for is never chosen: that kernel may need all such chunks at
/// once. The second value returned says whether the chunk is expected.
#[inline(always)]
pub(super) fn first_unspared(
    chunks: impl Iterator<Item = (Chunk, Standing)>,
) -> Option<(Chunk, bool)> {
    let mut last = None;
    for (chunk, standing) in chunks {
        match standing {
            Standing::Over | Standing::Unknown => return Some((chunk, false)),
            Standing::Expected(kernels) if last.is_none_or(|(most, _)| kernels > most) => {
                last = Some((kernels, chunk));
            }
            Standing::Expected(_) | Standing::Running => {}
        }
    }
    last.map(|(_, chunk)| (chunk, true))
}

/// The chunk that goes first of `chunks`, which are one process's used chunks, the oldest first: one that the process
/// needs last, as far as that is known, and else the oldest. [`REACH`] of them are looked at.
pub(super) fn first_of_one(used: Used<'_>, chunks: impl Iterator<Item = Chunk>) -> Option<Chunk> {
    let mut chunks = chunks.take(REACH).peekable();
    let first = *chunks.peek()?;
    let standing = |chunk| (chunk, lru::standing(used, chunk, first));
    let spareable = first_unspared(chunks.map(standing));
    Some(spareable.map_or(first, |(chunk, _)| chunk))
}

/// The chunk that the default policy chooses, whichever is in force.
pub(super) fn by_default(used: Used<'_>) -> Option<Chunk> {
    lru::Lru.choose(used)
}

/// The used chunks of one GPU, as a policy sees them: but for those that are protected at this moment
/// (`evict/lows.rs`).
#[derive(Clone, Copy)]
pub struct Used<'a> {
    roots: &'a RootChunks,
    /// Those that may go; `None` if all may.
    some: Option<Unprotected<'a>>,
}

impl<'a> Used<'a> {
    /// All used chunks, protected or not.
    #[inline(always)]
    pub(super) fn all(roots: &'a RootChunks) -> Self {
        Self { roots, some: None }
    }

    /// Those of the used chunks that may go.
    pub(super) fn of(roots: &'a RootChunks, some: Unprotected<'a>) -> Self {
        let some = Some(some);
        Self { roots, some }
    }

    /// How many such chunks there are, also those that the iterators do not reach.
    pub fn count(self) -> u32 {
        match self.some {
            Some(some) => some.count(),
            None => self.roots.length(Queue::Used),
        }
    }

    /// The first of the chunks in the order in which they were last used.
    #[inline(always)]
    pub fn oldest(self) -> Option<Chunk> {
        match self.some {
            None => self.roots.queues().oldest(Queue::Used),
            Some(_) => self.oldest_first().next(),
        }
    }

    /// The chunks in the order in which they were last used, the first 64 of them.
    #[inline(always)]
    pub fn oldest_first(self) -> impl Iterator<Item = Chunk> + 'a {
        self.walk(self.roots.queues().iter(Queue::Used), false)
    }

    /// The chunks in the other order, the last 64 of them.
    #[inline(always)]
    pub fn newest_first(self) -> impl Iterator<Item = Chunk> + 'a {
        self.walk(self.roots.queues().iter_back(Queue::Used), true)
    }

    /// The first chunks of `all`, or of those that may go.
    #[inline(always)]
    fn walk<I: Iterator<Item = Chunk>>(self, all: I, newest_first: bool) -> Take<Walk<'a, I>> {
        let walk = match self.some {
            Some(some) => Walk::Some(some.in_order(newest_first)),
            None => Walk::All(all),
        };
        walk.take(REACH)
    }

    /// Whether `chunk`, which is used, may go. A policy needs to ask only of chunks that it keeps itself.
    pub fn may_go(self, chunk: Chunk) -> bool {
        self.some.is_none_or(|some| some.has(chunk))
    }

    /// Whether none of the used chunks of `holder` may go.
    pub fn spares(self, holder: Holder) -> bool {
        self.some.is_some_and(|some| some.spares(holder))
    }

    /// Who needs `chunk`, as far as its process has announced kernels and the prefetcher expects one of
    /// them to access it (DeepUM §5.1).
    pub fn standing(self, chunk: Chunk) -> Standing {
        self.roots.standing(chunk)
    }

    /// The process that owns `chunk`; 0 if several do, or none.
    pub fn holder_of(self, chunk: Chunk) -> Holder {
        self.roots.holder_of(chunk)
    }
}

/// A walk over all used chunks, or over some.
enum Walk<'a, I> {
    All(I),
    Some(InOrder<'a>),
}

impl<I: Iterator<Item = Chunk>> Iterator for Walk<'_, I> {
    type Item = Chunk;

    #[inline]
    fn next(&mut self) -> Option<Chunk> {
        match self {
            Self::All(all) => all.next(),
            Self::Some(some) => some.next(),
        }
    }
}

/// Makes the list of policies: the first is the default.
macro_rules! policies {
    ($($(#[$when:meta])* $variant:ident: $policy:ty),* $(,)?) => {
        /// One of the policies, by number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Number {
            $($(#[$when])* $variant),*
        }

        /// A policy that a GPU uses, with what the policy keeps. Its number stands apart, so that one comparison tells a
        /// policy that keeps nothing.
        #[repr(u32)]
        enum InForce {
            $($(#[$when])* $variant($policy)),*
        }

        impl Choice {
            /// All policies, the default first.
            pub const ALL: &'static [Self] = &[$($(#[$when])* Self(Number::$variant)),*];

            /// The name that the policy is chosen by.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($(#[$when])* Number::$variant => <$policy>::NAME),*
                }
            }
        }

        impl Chooser {
            /// The policy of this name, for chunks 0 to `chunks` - 1.
            pub(super) fn new(choice: Choice, chunks: u32) -> Result<Self, OutOfMemory> {
                Ok(Self(match choice.0 {
                    $($(#[$when])* Number::$variant => InForce::$variant(<$policy>::new(chunks)?)),*
                }))
            }

            /// What the policy in force says of the oldest chunk ([`Policy::OLDEST_UNLESS_NEEDED`]).
            #[inline(always)]
            pub(super) fn oldest_unless_needed(&self) -> bool {
                match &self.0 {
                    $($(#[$when])* InForce::$variant(_) => <$policy>::OLDEST_UNLESS_NEEDED),*
                }
            }

            /// Tells the policy in force of a used chunk ([`Policy::used`]).
            #[inline]
            pub(super) fn used(&mut self, chunk: Chunk, holder: Holder) {
                match &mut self.0 {
                    $($(#[$when])* InForce::$variant(policy) => policy.used(chunk, holder)),*
                }
            }

            /// Tells the policy in force of a chunk that is used no more ([`Policy::left`]).
            #[inline]
            pub(super) fn left(&mut self, chunk: Chunk) {
                match &mut self.0 {
                    $($(#[$when])* InForce::$variant(policy) => policy.left(chunk)),*
                }
            }

            /// Tells the policy in force of an announcement ([`Policy::begins`]).
            pub(super) fn begins(&mut self, holder: Holder, kernel: bool) -> bool {
                match &mut self.0 {
                    $($(#[$when])* InForce::$variant(policy) => policy.begins(holder, kernel)),*
                }
            }

            /// Tells the policy in force of memory that comes ([`Policy::brings`]).
            #[inline]
            pub(super) fn brings(&mut self, holder: Holder, predicted: bool) {
                match &mut self.0 {
                    $($(#[$when])* InForce::$variant(policy) => policy.brings(holder, predicted)),*
                }
            }

            /// Tells the policy in force of a mark ([`Policy::expected`]).
            #[inline]
            pub(super) fn expected(&mut self, chunk: Chunk) {
                match &mut self.0 {
                    $($(#[$when])* InForce::$variant(policy) => policy.expected(chunk)),*
                }
            }

            /// Asks the policy in force whether a used chunk may go for a prefetch ([`Policy::may_bring`]).
            pub(super) fn may_bring(&self, holder: Holder, ahead: u32, chunk: Chunk) -> Option<bool> {
                match &self.0 {
                    $($(#[$when])* InForce::$variant(policy) => policy.may_bring(holder, ahead, chunk)),*
                }
            }

            /// Asks the policy in force for the chunk to evict ([`Policy::choose`]).
            pub(super) fn choose(&self, used: Used<'_>) -> Option<Chunk> {
                match &self.0 {
                    $($(#[$when])* InForce::$variant(policy) => policy.choose(used)),*
                }
            }
        }
    };
}

policies! {
    Lru: lru::Lru,
    Mru: mru::Mru,
    Fair: fair::Fair,
    Turns: turns::Turns,
    #[cfg(test)]
    Checked: tests::Checked,
}

/// A policy's choice, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice(Number);

impl Choice {
    /// The policy of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.name() == name)
    }

    /// The policy with this place in [`Choice::ALL`], if there is one.
    pub fn from_number(n: u32) -> Option<Self> {
        Self::ALL.get(n as usize).copied()
    }

    /// The place of the policy in [`Choice::ALL`].
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self(Number::Lru)
    }
}

/// The policy in force for one GPU.
pub(super) struct Chooser(InForce);

#[cfg(test)]
pub(super) mod tests;
