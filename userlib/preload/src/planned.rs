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
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::plan::Plan;
use uvmrust::{Moves, PerProcess, Uvm};

use crate::config::Config;
use crate::memory::{self, Asked};

/// A plan under way.
struct Running {
    plan: &'static Plan,
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
    let start = || match read() {
        Ok(plan) => Some(plan),
        Err(why) => {
            eprintln!("uvmrust: UVMRUST_PLAN={}: {why}", path.display());
            None
        }
    };
    PLAN.get_or_init(start).as_ref()
}

/// The plan, if it is one of a range.
fn running() -> Option<&'static Running> {
    static RUNNING: OnceLock<Option<Running>> = OnceLock::new();
    Config::get().plan.as_ref()?;
    let start = || {
        let plan = plan().filter(|plan| plan.program().is_none())?;
        if !Config::get().plan_is_ours {
            eprintln!(
                "uvmrust: the plan is for the program that uvmrun has started, and not for this one, \
                 which that has started"
            );
            return None;
        }
        Some(Running::new(plan))
    };
    RUNNING.get_or_init(start).as_ref()
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
    const fn new(plan: &'static Plan) -> Self {
        Self {
            plan,
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
        eprintln!(
            "uvmrust: the plan ends here: CUDA has refused a launch, so that it is not known where in \
             the plan the program is"
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
                eprintln!(
                    "uvmrust: the plan ends here: it is not known whether the memory that it is \
                     for is still there"
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
    static SAID: Once = Once::new();
    let Some(running) = running() else { return };
    let uvm = Uvm::process();
    let moves = running.moves.get_or_init(|| Moves::new(uvm).ok());
    let (Some(moves), Some(&gpu)) = (moves, running.gpu.get()) else {
        return;
    };
    // SAFETY: the range is not freed meanwhile. That the plan is for this program, and drops
    // only what no kernel reads, is for who gave it to say.
    let done = running.in_range(|base| unsafe {
        uvm.carry_out(running.plan.before(launch as u64), base, gpu, moves)
    });
    let done = done.unwrap_or(Ok(())).err().map(|error| error.to_string());
    let moved = || moves.failed().1.map(|failed| failed.to_string());
    if let Some(why) = done.or_else(moved) {
        SAID.call_once(|| eprintln!("uvmrust: the plan is not carried out in full: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SPAN: usize = 4096;

    fn running() -> Running {
        let plan = format!("uvmplan 1\nkernels 1\nspan {SPAN}\nat 0 free 0 0 4096\n");
        Running::new(Box::leak(Box::new(Plan::parse(&plan).unwrap())))
    }

    /// CUDA's number of an allocation, where there is one at each address.
    fn id(base: u64) -> Asked {
        Asked::Id(base + 7)
    }

    /// CUDA is asked to free the memory at an address, and has done so or not.
    fn free(running: &Running, base: u64, freed: bool) {
        if let Some(ending) = running.ending(|range| range == base) {
            running.ended(ending, freed);
        }
    }

    /// The range in which requests are carried out just now.
    fn range(running: &Running) -> Option<u64> {
        running.in_range(|base| base)
    }

    #[test]
    fn a_plan_ends_with_its_range() {
        let running = running();
        assert_eq!(range(&running), None);
        running.allocated(1 << 22, SPAN - 1, id);
        assert_eq!(range(&running), None);
        running.allocated(1 << 21, SPAN, id);
        running.allocated(1 << 23, SPAN, id);
        assert_eq!(range(&running), Some(1 << 21));
        free(&running, 1 << 22, true);
        assert_eq!(range(&running), Some(1 << 21));
        assert!(super::Running::new(running.plan).ending(|_| true).is_none());
        free(&running, 1 << 21, true);
        assert_eq!(range(&running), None);
        // Neither what is there next, nor what is anywhere else, is laid out as the plan says.
        for base in [1 << 21, 1 << 24] {
            running.allocated(base, SPAN, id);
            assert_eq!(range(&running), None);
        }
    }

    #[test]
    fn a_range_that_cuda_does_not_free_stays_the_range() {
        let running = running();
        running.allocated(1 << 21, SPAN, id);
        let ending = running.ending(|base| base == 1 << 21).unwrap();
        // Neither while CUDA is at it nor before it is asked what came of it.
        assert_eq!(range(&running), None);
        running.settle(id);
        assert_eq!(range(&running), None);
        running.ended(ending, false);
        assert_eq!(range(&running), None);
        // The first that comes finds out.
        running.allocated(1 << 22, SPAN, id);
        assert_eq!(range(&running), Some(1 << 21));
    }

    #[test]
    fn a_range_is_gone_if_cuda_knows_it_no_more() {
        for gone in [Asked::Nothing, Asked::Id(1), Asked::Unknown] {
            let running = running();
            running.allocated(1 << 21, SPAN, id);
            let ending = running.ending(|_| true).unwrap();
            // Memory of another thread's, which may be of the context that is destroyed.
            running.allocated(1 << 22, SPAN, id);
            running.ended(ending, false);
            running.settle(|_| gone);
            assert_eq!(range(&running), None);
            running.allocated(1 << 23, SPAN, id);
            assert_eq!(range(&running), None);
        }
    }

    #[test]
    fn a_range_without_a_number_is_over_with_the_first_doubt() {
        let running = running();
        running.allocated(1 << 21, SPAN, |_| Asked::Unknown);
        assert_eq!(range(&running), Some(1 << 21));
        free(&running, 1 << 21, false);
        running.settle(id);
        assert_eq!(range(&running), None);
    }

    /// A call that ends while another goes on says nothing of the other's.
    #[test]
    fn nothing_is_carried_out_until_the_last_of_several_calls_is_over() {
        let running = running();
        running.allocated(1 << 21, SPAN, id);
        let (one, other) = (running.ending(|_| true), running.ending(|_| true));
        running.ended(one.unwrap(), false);
        running.settle(id);
        assert_eq!(range(&running), None);
        running.ended(other.unwrap(), false);
        running.settle(id);
        assert_eq!(range(&running), Some(1 << 21));
        // What comes and goes while CUDA is asked may have ended it since.
        running.ended(running.ending(|_| true).unwrap(), false);
        running.settle(|base| {
            let late = running.ending(|_| true).unwrap();
            running.ended(late, false);
            id(base)
        });
        assert_eq!(range(&running), None);
        running.settle(id);
        assert_eq!(range(&running), Some(1 << 21));
    }

    /// Whatever call it was that has freed it: none that we know is.
    #[test]
    fn a_range_is_gone_where_other_memory_is_in_its_place() {
        let base = 1 << 21;
        for (other, size) in [
            (base, 1),
            (base, SPAN),
            (base + SPAN as u64 - 1, SPAN),
            (base - 64, 65),
            (base - 64, 4 * SPAN),
        ] {
            let running = running();
            running.allocated(base, SPAN, id);
            // CUDA has a number for what is there now, as for what was.
            running.allocated(other, size, id);
            assert_eq!(range(&running), None, "{other:#x} {size}");
        }
        let running = running();
        running.allocated(base, SPAN, id);
        for (other, size) in [(base - 64, 64), (base + SPAN as u64, SPAN)] {
            running.allocated(other, size, id);
            assert_eq!(range(&running), Some(base));
        }
    }

    #[test]
    fn a_plan_ends_with_a_launch_that_is_refused() {
        let running = running();
        running.refused();
        running.allocated(1 << 21, SPAN, id);
        assert_eq!(range(&running), Some(1 << 21));
        running.refused();
        assert_eq!(range(&running), None);
        running.allocated(1 << 23, SPAN, id);
        assert_eq!(range(&running), None);
    }

    #[test]
    fn what_cuda_does_not_know_is_not_taken() {
        let running = running();
        running.allocated(1 << 21, SPAN, |_| Asked::Nothing);
        assert_eq!(range(&running), None);
        running.allocated(1 << 22, SPAN, |_| Asked::Unknown);
        assert_eq!(range(&running), Some(1 << 22));
    }

    #[test]
    fn a_range_is_not_freed_while_requests_are_carried_out_in_it() {
        let running = running();
        running.allocated(1 << 21, SPAN, id);
        let freed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let done = running.in_range(|_| {
                scope.spawn(|| {
                    free(&running, 1 << 21, true);
                    freed.store(true, Relaxed);
                });
                std::thread::sleep(Duration::from_millis(200));
                freed.load(Relaxed)
            });
            assert_eq!(done, Some(false));
        });
        assert!(freed.load(Relaxed));
        assert_eq!(range(&running), None);
    }
}
