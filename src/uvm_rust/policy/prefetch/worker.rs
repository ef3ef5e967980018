// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The worker: learns, and chooses which block it moves next, and when (DeepUM §3.1, §5.1).
//!
//! A process has one worker, a work item that is queued when a kernel is announced or a fault
//! is learnt of. One call of [`Worker::turn`], for one GPU, is a turn of it:
//!
//! ```text
//!  learn    rings -> tables                        correlator: Correlator::absorb
//!  choose   tables -> the next block               prefetcher: Correlator::next
//!  fetch    what is on the SSD is asked for        the tier's readers (policy/flash/asked.rs)
//!  move     faults first; locks; room; copy        migration:  run.rs, room.rs
//!             ^            |
//!             +--- while the copy runs, the next is learnt, chosen and begun
//! ```
//!
//! A block that was asked for comes again when a read has ended, and then goes from host memory to the GPU like any other.
//!
//! When no predicted block is left and kernels come as predicted, the worker pushes the oldest blocks of its own
//! process out. It stops at the watermark of chunks that can be allocated without a copy.
//!
//! The worker acts only through [`Machine`]: in the driver that is a VA space and a GPU with
//! upstream's va_block code behind them, under `cargo test` a model of them.
//!
//! # Invariants
//!
//! - **W-learn**: the worker learns what happened before it chooses a block. A kernel may be announced while the
//!   worker waits for faults; then the worker learns of the kernel and chooses a block again.
//! - **W-faults**: the worker begins no block while the GPU's faults are being serviced. If the wait for the fault
//!   service times out, the worker begins one block, and the turn ends. So faults, of whatever process, slow the
//!   worker down and do not starve it: each wait is followed by a block. During a wait the worker holds no lock
//!   that the fault service might wait for. Blocks that are resident already are marked without a wait.
//! - **W-lock**: every `enter` is followed by one `leave`, before a wait for faults and before the turn ends. Only a
//!   few blocks are moved between the two, so that a writer of the VA space waits for no more than these. Within
//!   them, the lock of one va_block at a time is held.
//! - **W-copies**: the worker waits for a copy only when it must. One case is a third copy, which takes the place of
//!   the first: so a fault's copy stands behind those of two blocks at most. The other is the end of the locks,
//!   which keep the copying GPU alive.
//! - **W-room**: a prefetch evicts no block that is expected itself or that a running kernel has asked for. A
//!   prefetch that finds no other victim, or gets no memory from it, is held back until the next kernel. It does not
//!   wait for memory: the locks of W-lock are held meanwhile, and nobody needs what it brings.
//! - **W-ssd**: of a predicted block that is on the SSD, the pages that a prefetch would bring (W-fit, and policy) are
//!   asked for, if the block has a chunk or there is room for it (W-room). That is done with the va_block's lock held, which
//!   protects what is asked for, and nobody waits for a read with it. What somebody reads, or is to read, is not asked
//!   for; nor is a block of which a read has failed, and a prediction asks once: what did not come is left to those who
//!   use it. The worker hears of the end of each read of such a block, also of those that others make. At most
//!   `feed::FETCHES` blocks are on their way at a time. One more is not asked for before one of these has come or was
//!   tried in vain, whether or not its kernel is over and whatever else the worker does in between.
//! - **W-own**: only memory of the process is pushed out, that nobody expects, the running kernel has
//!   not asked for, and whose policy lets it go, and none once there are chunks enough. It is so once its lock is held. Which kernel runs, the chunks
//!   hear from who announces it ([`Worker::begins`]), as the worker may learn late of it.
//! - **W-fit**: of a block only those pages are brought that are somewhere, do not thrash and
//!   are not discarded, as they are when the copy is begun. Of a block that is pushed out, pages that are discarded are
//!   dropped first, as by an eviction: a copy would make live pages of zeros of them on the host.
//! - **W-mark**: a chunk is marked under a number that this generation of the GPU's queues gave. A chunk that
//!   only the worker brought does not count as the running kernel's.
//! - **W-bound**: a turn learns, looks at and moves a bounded number.
//! - **W-stop**: once the VA space ends, no further block is begun.
//!
//! Locking: none here. One turn of a worker runs at a time.

mod part;
mod room;
mod run;

use self::part::Part;
use self::run::Run;
use super::{Correlator, Feed, Share};
use crate::policy::evict::{Chunk, Holder, Owner, RootChunks, Tenant};
pub use crate::policy::flash::wants::Stored;
use crate::policy::mask::PageMask;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How many blocks a turn chooses at most; then other workers have their turns.
const BLOCKS_A_TURN: u32 = 32;
/// How many announcements and faults are learnt before each block.
const EVENTS_A_BLOCK: u32 = 1024;
/// How many steps a walk takes through the tables while they are locked.
const STEPS: u32 = 256;
/// How long the worker waits for the fault service at a time, in milliseconds. Storms of faults may last; prefetching
/// is of no use then, and neither is waiting for ever.
#[allow(dead_code)] // The driver's machine waits by the clock.
pub const FAULTS_WITHIN: u64 = 100;
/// How many blocks are moved while the VA space's lock is held.
const BLOCKS_A_HOLD: u32 = 4;
/// How many copies are under way at a time. Two: the second is set up while the first runs.
pub const IN_FLIGHT: u32 = 2;
/// The most chunks of a turn that turn out not to be movable. Those of the next turn are others.
const VICTIMS_A_TURN: u32 = 16;

/// The parameters of the worker, fixed while the driver is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Whether the worker may prefetch ([`Worker::set_acts`]); otherwise it only learns.
    pub act: bool,
    /// How many chunks that can be had without a copy are enough, so that nothing is pushed out; 0: no pre-eviction.
    pub watermark: u32,
    /// Whose places it takes among those that mark chunks ([`RootChunks::add_owner_of`]).
    pub tenant: Tenant,
}

/// What keeps a va_block where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hindrances {
    /// There is no va_block: the memory is not managed, or was never touched.
    pub no_block: bool,
    /// Its preferred location is another processor.
    pub preferred_elsewhere: bool,
    /// Its pages are duplicated by reads.
    pub read_duplicated: bool,
    /// The GPU uses it where it is, in UVM-Lite mode.
    pub lite: bool,
    /// Its range group may not be migrated.
    pub group_stays: bool,
}

impl Hindrances {
    /// Whether policy allows the driver to move the block.
    pub fn may_move(self) -> bool {
        self == Self::default()
    }
}

/// A part of a range of addresses, in which there is at most one va_block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What keeps the va_block that was found where it is.
    pub hindrances: Hindrances,
    /// The first address behind the part.
    pub next: u64,
}

/// Pages of the locked va_block, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Resident on any processor.
    pub populated: PageMask,
    /// Pages that thrash: the next access decides where they are.
    pub thrashing: PageMask,
    /// Discarded, eagerly or lazily.
    pub discarded: PageMask,
    /// Resident on the GPU.
    pub there: PageMask,
}

/// Where a block is moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The GPU of the turn.
    Gpu,
    /// Host memory, charged to the process.
    Host,
}

#[allow(dead_code)] // The driver's machine maps; a model has nothing to map.
impl To {
    /// Whether what is moved is mapped where it goes. The next kernel of a GPU uses it there; on the host it was put out of
    /// the way, and maybe nobody uses it before it comes back.
    pub fn is_mapped(self) -> bool {
        self == Self::Gpu
    }
}

/// The outcome of [`Machine::migrate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrated {
    /// The copies are under way.
    Begun,
    /// Some of the copies may be under way. The driver released the va_block's lock to get memory, so the pages
    /// may be in other places than before.
    Again,
    /// There is no memory now: all of it is in use, and what was to be evicted stays.
    NoRoom,
    /// The driver could not, for another reason.
    Failed,
}

/// The outcome of [`Machine::settle`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// None of the copies failed.
    pub good: bool,
    /// The copies were still under way, and were waited for.
    pub waited: bool,
}

/// The outcome of a prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Pages of the block were moved.
    Moved,
    /// All pages of the block were there already.
    Resident,
    /// There is no room, unless an expected block is evicted, or the worker waits for a chunk that somebody holds.
    NoRoom,
    /// The memory is gone, or policy wants it in another place.
    Unfit,
    /// The driver could not, for another reason.
    Failed,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do, after other workers' turns.
    More,
    /// There is nothing to do until the next kernel or fault.
    Idle,
    /// As [`Turn::Idle`], and enough chunks can be had without a copy.
    Ready,
    /// As [`Turn::Idle`], and no block may be pushed out.
    NoVictim,
    /// As [`Turn::Idle`], and a block could not be pushed out.
    GaveUp,
    /// The VA space ends, the GPU has left it, or the system suspends.
    Stopped,
}

impl Turn {
    /// Whether another turn must follow, even if nobody wakes the worker.
    pub fn is_more(self) -> bool {
        self == Self::More
    }
}

/// What the worker works on: a VA space and one GPU, for the length of a turn.
///
/// Between [`Machine::next_block`] or [`Machine::victim`], which choose a va_block, and the
/// next one, all calls mean that block.
pub trait Machine {
    /// Whether contracts of the machine are checked.
    const CHECKS: bool;

    /// Reports that the machine breaks the contract of this name. The worker goes on.
    fn broken(&mut self, invariant: &'static str);

    /// Shows the process's tables, the rings that feed them, and what they may take, to `look`.
    /// Nobody else uses the tables meanwhile.
    fn tables<R>(&mut self, look: impl FnOnce(&mut Correlator, &Feed, &Share) -> R) -> R;

    /// Whether the VA space is about to end.
    fn is_stopping(&mut self) -> bool;

    /// Whether faults of the GPU, of whatever process, are being serviced.
    fn faults(&mut self) -> bool;

    /// Waits until the GPU's faults are serviced, for [`FAULTS_WITHIN`] at most. Returns whether they are. The
    /// caller holds no lock.
    fn wait_faults(&mut self) -> bool;

    /// Takes the locks under which memory is moved. Returns false, and holds none of them, if the VA space ends,
    /// does not have the GPU, or the system suspends.
    fn enter(&mut self) -> bool;

    /// Releases the locks of [`Machine::enter`].
    fn leave(&mut self);

    /// The process, as the chunks know it.
    fn holder(&self) -> Holder;

    /// Shows the GPU's root chunks, and the generation of their queues, to `look`, which must neither
    /// sleep nor allocate. None where upstream's lists decide.
    fn chunks<R>(&mut self, look: impl FnOnce(&mut RootChunks, u32) -> R) -> Option<R>;

    /// Whether the process may hold no further root chunk of the GPU (`policy/quota.rs`).
    fn is_full(&mut self) -> bool {
        false
    }

    /// How many root chunks nobody has allocated; counts no more than `enough`.
    fn free_chunks(&mut self, enough: u32) -> u32;

    /// Lets `choose` choose a root chunk, and notes what it holds before that can change, for
    /// [`Machine::victim`].
    fn pick(&mut self, choose: impl FnOnce(&RootChunks) -> Option<Chunk>) -> Option<Chunk>;

    /// Chooses the va_block that was noted. None if it is not, or no longer, one of this VA space.
    fn victim(&mut self) -> Option<Hindrances>;

    /// Chooses the va_block at the first memory from `from` on, up to and including `last`. None
    /// if there is no memory.
    fn next_block(&mut self, from: u64, last: u64) -> Option<Found>;

    /// Locks the va_block, to move it.
    fn lock(&mut self, to: To);

    /// Unlocks the va_block that is locked.
    fn unlock(&mut self);

    /// The pages of the va_block, by state.
    fn pages(&mut self) -> Pages;

    /// What an SSD has of the va_block, if there is one.
    fn stored(&mut self) -> Stored {
        Stored::default()
    }

    /// Has a reader bring `pages` of the va_block from the SSD to host memory, where the process is charged for them.
    /// After that was tried, [`Feed::read_ended`] is called and the worker woken. Returns whether a reader will do
    /// so. Keeps the va_block's lock, and waits for nothing.
    fn fetch(&mut self, _pages: &PageMask) -> bool {
        false
    }

    /// Has [`Feed::read_ended`] called, and the worker woken, whenever a read of the va_block ends, whoever makes it,
    /// until no more reads of it are asked for. The va_block's lock is held.
    fn tell_of_reads(&mut self) {}

    /// The GPU's root chunk that holds the va_block's first page.
    fn chunk(&mut self) -> Option<Chunk>;

    /// Drops those of the `leaving` pages, which are on the GPU, that are discarded. After [`Migrated::Begun`] they
    /// are resident nowhere, and still discarded. The va_block is locked to go to the host.
    fn drop_discarded(&mut self, leaving: &PageMask) -> Migrated;

    /// Begins to move pages of the va_block. Their copies get the number `copy`, below [`IN_FLIGHT`], together with
    /// others that got it since it was last settled. A move to the GPU takes memory that can be had at once, and
    /// waits neither for pages that somebody holds nor for what others evict.
    fn migrate(&mut self, copy: u32, pages: &PageMask, to: To) -> Migrated;

    /// Waits until the copies numbered `copy` are done.
    fn settle(&mut self, copy: u32) -> Settled;

    /// Counts a block whose copies were waited for, after the copies of so many further blocks had begun.
    fn waited(&mut self, beside: u32);

    /// Counts a block that was predicted, and `pages` that were brought.
    fn brought(&mut self, outcome: Outcome, pages: u32);

    /// Counts a block that was pushed out, and its pages.
    fn pushed_out(&mut self, pages: u32);
}

/// The worker of one process on one GPU.
pub struct Worker {
    params: Params,
    /// The number under which the process marks chunks (lower half), and the generation of the GPU's queues that gave
    /// it (upper half); 0 for none. Written while the queues are shown, by one thread at a time.
    owner: AtomicU64,
    /// Whether it prefetches now, if it may by its parameters.
    acts: AtomicBool,
    #[cfg(test)]
    without: Option<Part>,
}

impl Worker {
    /// Makes a worker that has not worked yet.
    pub const fn new(params: Params) -> Self {
        Self {
            params,
            owner: AtomicU64::new(0),
            acts: AtomicBool::new(true),
            #[cfg(test)]
            without: None,
        }
    }

    /// Whose places it takes.
    pub fn tenant(&self) -> Tenant {
        self.params.tenant
    }

    /// Says whether it prefetches in the turns that follow, if it may by its parameters; otherwise it only learns. Before this
    /// is called, it does.
    pub fn set_acts(&self, acts: bool) {
        self.acts.store(acts, Relaxed);
    }

    /// Whether it prefetches in a turn that begins now.
    fn acts(&self) -> bool {
        self.params.act && self.acts.load(Relaxed)
    }

    /// Makes a turn: learns, brings blocks, and pushes out others. See [`Turn::is_more`].
    pub fn turn<M: Machine>(&self, machine: &mut M) -> Turn {
        let mut run = Run::new(self, machine);
        let turn = run.steps();
        run.let_go();
        turn
    }

    /// Tells the root chunks of the GPU, and the generation of their queues, that the process begins another kernel,
    /// before that kernel can fault. The worker may be busy with the last kernel for long before it learns of this
    /// one; meanwhile it would evict blocks that this one asks for.
    pub fn begins(&self, roots: &mut RootChunks, generation: u32, holder: Holder) {
        if self.params.act && !self.lacks(Part::Begins) {
            self.as_owner(roots, generation, holder, RootChunks::begins);
        }
    }

    /// Calls `what` with the owner that `holder` numbers, or with a new owner if that number has none.
    fn as_owner(
        &self,
        roots: &mut RootChunks,
        generation: u32,
        holder: Holder,
        what: impl Fn(&mut RootChunks, Owner) -> bool,
    ) {
        let owner = self.owner_in(generation);
        // The process has no number yet, or lost it: the GPU was away, or another process took its place.
        if !what(roots, owner) && !self.lacks(Part::ComesAgain) || owner == 0 {
            let owner = roots.add_owner_of(holder, self.params.tenant);
            self.set_owner(owner, generation);
            what(roots, owner);
        }
    }

    /// Withdraws the marks of a VA space that has ended, after its last turn. The machine needs no lock
    /// but the one that [`Machine::chunks`] takes.
    pub fn retire<M: Machine>(&self, machine: &mut M) {
        let _ = machine.chunks(|roots, generation| {
            let owner = self.owner_in(generation);
            if !self.lacks(Part::Retires) {
                roots.remove_owner(owner);
            }
        });
    }

    /// The number under which chunks are marked in queues of this generation; 0 for none.
    fn owner_in(&self, generation: u32) -> Owner {
        let owner = self.owner.load(Relaxed);
        if (owner >> 32) as u32 == generation || self.lacks(Part::Generation) {
            owner as u32
        } else {
            0
        }
    }

    fn set_owner(&self, owner: Owner, generation: u32) {
        let both = (u64::from(generation) << 32) | u64::from(owner);
        self.owner.store(both, Relaxed);
    }
}

#[cfg(test)]
mod tests;
