// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A plan that is carried out while the program runs (`UVMRUST_PLAN`), and was not made of a
//! record (those: `followed.rs`).
//!
//! The plan's range is the first managed allocation that is large enough for its span;
//! the program has its tensors there where the plan says. From then on each launch is a
//! kernel of the step: what the plan asks for before it is done by a host function, in the
//! order of the stream, just before the kernel. It is for one stream, and for the GPU that
//! is current at the first launch. The plan ends with its range: what the program allocates
//! next is laid out as nobody knows, and what the plan drops would be lost there.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::plan::Plan;
use uvmrust::{Moves, PerProcess, Result, Uvm};

use crate::config::Config;
use crate::memory::{self, Asked};
use crate::say::say;

/// So many kernels' moves may wait where a step has fewer: a thread that is late for a moment loses none.
const MAY_WAIT: u64 = 64;

/// A plan under way.
struct Running {
    plan: &'static Plan,
    /// Of so many kernels moves may wait.
    may_wait: u64,
    /// Where its range begins; 0: there is none yet, or none any more. Changed under the lock of `in_range`.
    base: AtomicU64,
    /// Launches in the range.
    launches: AtomicU64,
    /// Whether CUDA is to be asked if the range is still there ([`Running::settle`]).
    doubtful: AtomicBool,
    gpu: OnceLock<[u8; 16]>,
    /// Made by the first launch that asks for something; `None`: there is no thread for it.
    moves: OnceLock<Option<Moves>>,
    /// Held while requests are carried out in the range, and to change whether there is one. CUDA
    /// does not promise that a free waits for the stream ("this API may perform implicit
    /// synchronization", `cuMemFree`): what is freed waits for this instead, and what comes
    /// later in the stream finds no range. CUDA is never called with it held.
    in_range: PerProcess<Mutex<Range>>,
}

/// What is known of the plan's range.
#[derive(Debug, Default)]
struct Range {
    /// CUDA's number of the allocation, if CUDA tells it.
    id: Option<u64>,
    /// Calls under way that may end the range. Nothing is carried out meanwhile.
    leaving: u32,
    /// Calls that may have ended it, so far.
    doubts: u64,
    /// The plan has ended: its range is gone, it is not known what became of the range, or a launch was
    /// refused.
    over: bool,
}

/// A call of CUDA's that may end the range.
#[must_use]
pub(crate) struct Ending(());

/// A launch that was counted.
#[must_use]
pub(crate) struct Counted(());

/// The process's plan, if it was given one that can be read.
pub(crate) fn plan() -> Option<&'static Plan> {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let path = Config::get().plan.as_ref()?;
    let read = || {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Plan::parse(&text).map_err(|error| error.to_string())
    };
    // Nothing is said while other threads wait for the plan.
    let mut failed = None;
    let start = || read().map_err(|why| failed = Some(why)).ok();
    let plan = PLAN.get_or_init(start).as_ref();
    if let Some(why) = failed {
        say(format!("UVMRUST_PLAN={}: {why}", path.display()));
    }
    plan
}

/// The plan, if it is one of a range.
fn running() -> Option<&'static Running> {
    static RUNNING: OnceLock<Option<Running>> = OnceLock::new();
    Config::get().plan.as_ref()?;
    let plan = plan().filter(|plan| plan.program().is_none())?;
    let mut is_others = false;
    let start = || {
        is_others = !Config::get().plan_is_ours;
        (!is_others).then(|| Running::new(plan))
    };
    let running = RUNNING.get_or_init(start).as_ref();
    if is_others {
        say(
            "the plan is for the program that uvmrun has started, and not for this one, \
             which that has started",
        );
    }
    running
}

/// Says that there is a new managed allocation: it may be the plan's range.
pub(crate) fn allocated(cuda: &Cuda, base: u64, size: usize) {
    if let Some(running) = running() {
        running.allocated(base, size, |base| memory::id_of(cuda, base));
    }
}

/// Says that an address is about to be freed; `None`: it is not that of the plan's range.
pub(crate) fn ending(base: u64) -> Option<Ending> {
    running()?.ending(|range| range == base)
}

/// Says that a context may be about to be destroyed, with the memory that was allocated in it.
/// Which contexts' that is, only CUDA knows.
pub(crate) fn may_end() -> Option<Ending> {
    running()?.ending(|_| true)
}

/// Says that such a call is over; `freed`: CUDA has freed that address, and the plan ends. Else CUDA is
/// asked before anything is carried out again.
pub(crate) fn ended(ending: Option<Ending>, freed: bool) {
    if let (Some(running), Some(ending)) = (running(), ending) {
        running.ended(ending, freed);
    }
}

/// Counts a launch and puts what the plan asks for before it into its stream; `None`: it does not count.
/// While a graph is being captured nothing is launched.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(crate) unsafe fn before_launch(cuda: &Cuda, stream: Stream) -> Option<Counted> {
    let running = running().filter(|r| r.base.load(Relaxed) != 0)?;
    // SAFETY: by our contract.
    if unsafe { memory::is_capturing(cuda, stream) } {
        return None;
    }
    running.settle(|base| memory::id_of(cuda, base));
    if running.base.load(Relaxed) == 0 {
        return None;
    }
    let n = running.launches.fetch_add(1, Relaxed);
    let counted = Some(Counted(()));
    if running.plan.before(n).is_empty() || running.gpu(cuda).is_none() {
        return counted;
    }
    // So that the host function need not ask CUDA whose descriptor there is.
    let _ = Uvm::process().backend();
    // SAFETY: the data is a number, good for ever. An error is left to the launch
    // that follows, which will meet it too.
    let _ = unsafe { cuda.host_func(stream, carry_out, n as *mut c_void) };
    counted
}

/// Says whether CUDA has taken a launch. Where it has not, nobody knows which of the plan's kernels the
/// program launches next, and the plan ends.
pub(crate) fn after_launch(counted: Option<Counted>, launched: bool) {
    if let (Some(Counted(())), Some(running), false) = (counted, running(), launched) {
        running.refused();
    }
}

impl Running {
    fn new(plan: &'static Plan) -> Self {
        Self {
            plan,
            may_wait: plan.moving().max(MAY_WAIT),
            base: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            doubtful: AtomicBool::new(false),
            gpu: OnceLock::new(),
            moves: OnceLock::new(),
            in_range: PerProcess::new(Mutex::default),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Range> {
        let lock = self.in_range.get().lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn allocated(&self, base: u64, size: usize, id: impl Fn(u64) -> Asked) {
        self.replaced(base, size as u64);
        // Only then for the lock, which may be held for long.
        if (size as u64) < self.plan.span() {
            return;
        }
        self.settle(&id);
        if self.base.load(Relaxed) != 0 {
            return;
        }
        let id = match id(base) {
            Asked::Id(id) => Some(id),
            // Another thread has destroyed its context.
            Asked::Nothing => return,
            Asked::Unknown => None,
        };
        let mut range = self.lock();
        if self.base.load(Relaxed) == 0 && !range.over {
            range.id = id;
            self.base.store(base, Relaxed);
        }
    }

    /// Ends the range if part of it is given to the program anew: then it is gone, by whatever call that
    /// may have been.
    fn replaced(&self, base: u64, size: u64) {
        let is = || {
            let range = self.base.load(Relaxed);
            let (end, range_end) = (
                base.saturating_add(size),
                range.saturating_add(self.plan.span()),
            );
            range != 0 && base < range_end && range < end
        };
        if is() {
            let mut range = self.lock();
            if is() {
                self.end(&mut range);
            }
        }
    }

    /// CUDA has refused a launch that was counted.
    fn refused(&self) {
        let mut range = self.lock();
        if self.base.load(Relaxed) == 0 {
            return;
        }
        self.end(&mut range);
        drop(range);
        say(
            "the plan ends here: CUDA has refused a launch, so that it is not known where in \
             the plan the program is",
        );
    }

    fn ending(&self, which: impl Fn(u64) -> bool) -> Option<Ending> {
        // One that begins while a context is destroyed may be of this context, and counts.
        let may = || match self.base.load(Relaxed) {
            // A call on address 0 is none on the range that another thread is about to have.
            0 => false,
            base => which(base),
        };
        if !may() {
            return None;
        }
        let mut range = self.lock();
        may().then(|| {
            range.leaving += 1;
            Ending(())
        })
    }

    fn ended(&self, Ending(()): Ending, freed: bool) {
        let mut range = self.lock();
        range.leaving = range.leaving.saturating_sub(1);
        if self.base.load(Relaxed) == 0 {
            return;
        }
        if freed {
            self.end(&mut range);
        } else {
            range.doubts += 1;
            self.doubtful.store(true, Relaxed);
        }
    }

    /// Ends the range, and with it the plan.
    fn end(&self, range: &mut Range) {
        range.over = true;
        self.base.store(0, Relaxed);
        self.doubtful.store(false, Relaxed);
    }

    /// Finds out by CUDA whether the range is still there, where that is in doubt. For a thread that
    /// has a current context. Launches are counted meanwhile, so that a range that is still there goes
    /// on where the program is.
    fn settle(&self, ask: impl Fn(u64) -> Asked) {
        if !self.doubtful.load(Relaxed) {
            return;
        }
        let known = |range: &Range| {
            let base = self.base.load(Relaxed);
            (base != 0 && range.leaving == 0).then_some((base, range.doubts))
        };
        let Some(before) = known(&self.lock()) else {
            return;
        };
        let asked = ask(before.0);
        let mut range = self.lock();
        if known(&range) != Some(before) {
            return;
        }
        match (asked, range.id) {
            (Asked::Id(now), Some(id)) if now == id => self.doubtful.store(false, Relaxed),
            // Its address may be another's by now.
            (Asked::Nothing, _) | (Asked::Id(_), Some(_)) => self.end(&mut range),
            (Asked::Unknown, _) | (Asked::Id(_), None) => {
                self.end(&mut range);
                drop(range);
                say(
                    "the plan ends here: it is not known whether the memory that it is \
                     for is still there",
                );
            }
        }
    }

    /// Does something with the beginning of the range, which is not freed meanwhile; nothing if it is gone.
    fn in_range<T>(&self, work: impl FnOnce(u64) -> T) -> Option<T> {
        let range = self.lock();
        let base = self.base.load(Relaxed);
        let there = range.leaving == 0 && !self.doubtful.load(Relaxed) && base != 0;
        there.then(|| work(base))
    }

    /// Makes the requests before a launch, on this GPU. Where moves take longer than kernels, those that have
    /// waited for a whole step are forgotten, the oldest first: their kernels are over, and what waits behind
    /// them asks for the same moves anew.
    ///
    /// # Safety
    /// As for [`Uvm::carry_out`], but for the range.
    unsafe fn carry_out(&self, uvm: &Uvm, launch: u64, gpu: [u8; 16], moves: &Moves) -> Result<()> {
        // SAFETY: the range is not freed meanwhile; the rest by our contract.
        let done = self
            .in_range(|base| unsafe { uvm.carry_out(self.plan.before(launch), base, gpu, moves) });
        moves.keep_last(self.may_wait);
        done.unwrap_or(Ok(()))
    }

    fn gpu(&self, cuda: &Cuda) -> Option<[u8; 16]> {
        if let Some(&known) = self.gpu.get() {
            return Some(known);
        }
        let uuid = cuda.uuid_of(cuda.current_device().ok()?).ok()?;
        Some(*self.gpu.get_or_init(|| uuid))
    }
}

/// Runs in the stream before a launch. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn carry_out(launch: *mut c_void) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(running) = running() else { return };
    let uvm = Uvm::process();
    let moves = running.moves.get_or_init(|| Moves::new(uvm).ok());
    let (Some(moves), Some(&gpu)) = (moves, running.gpu.get()) else {
        return;
    };
    // SAFETY: that the plan is for this program, and drops only what no kernel reads, is for who gave it to
    // say.
    let done = unsafe { running.carry_out(uvm, launch as u64, gpu, moves) };
    let done = done.err().map(|error| error.to_string());
    let moved = || moves.failed().1.map(|failed| failed.to_string());
    if let Some(why) = done.or_else(moved) {
        if !SAID.swap(true, Relaxed) {
            say(format!("the plan is not carried out in full: {why}"));
        }
    }
}

#[cfg(test)]
mod tests;
