// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A plan that is carried out while the program runs (`UVMRUST_PLAN`), and was not made of a
//! record (those: `followed.rs`).
//!
//! The plan's range is the first managed allocation that is large enough for its span;
//! the program has its tensors there where the plan says. From then on each launch is a
//! kernel of the step: what the plan asks for before it is done by a host function, in the
//! order of the stream, just before the kernel. It is for one stream, and for the GPU that
//! is current at the first launch.

use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::plan::Plan;
use uvmrust::{Moves, PerProcess, Uvm};

use crate::config::Config;

/// A plan under way.
struct Running {
    plan: &'static Plan,
    /// Where its range begins; 0: the program has none yet.
    base: AtomicU64,
    /// Ranges that it has had.
    epoch: AtomicU64,
    /// Launches since there is this one.
    launches: AtomicU64,
    gpu: OnceLock<[u8; 16]>,
    /// Made by the first launch that asks for something; `None`: there is no thread for it.
    moves: OnceLock<Option<Moves>>,
    /// Held while requests are carried out in the range, and to change which it is. CUDA does
    /// not promise that a free waits for the stream ("this API may perform implicit
    /// synchronization", `cuMemFree`): what is freed waits for this instead, and what comes
    /// later in the stream finds another range, or none.
    in_range: PerProcess<Mutex<()>>,
}

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
        Some(Running::new(plan))
    };
    RUNNING.get_or_init(start).as_ref()
}

/// Says that there is a new managed allocation: it may be the plan's range.
pub(crate) fn allocated(base: u64, size: usize) {
    if let Some(running) = running() {
        running.allocated(base, size);
    }
}

/// Says that an address is about to be free. If it was the plan's range, the next one that
/// fits begins anew.
pub(crate) fn freed(base: u64) {
    if let Some(running) = running() {
        running.freed(|range| range == base);
    }
}

/// Says that a context is about to be destroyed, and the memory that was allocated in it.
/// Which contexts' that is, is not known here: the plan's range counts as gone.
pub(crate) fn freed_all() {
    if let Some(running) = running() {
        running.freed(|_| true);
    }
}

/// Counts a launch and puts what the plan asks for before it into its stream. While a graph
/// is being captured nothing is launched.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one.
pub(crate) unsafe fn before_launch(cuda: &Cuda, stream: Stream) {
    let Some(running) = running().filter(|r| r.base.load(Relaxed) != 0) else {
        return;
    };
    // SAFETY: by our contract.
    if unsafe { crate::memory::is_capturing(cuda, stream) } {
        return;
    }
    let (n, data) = running.launched();
    if running.plan.before(n).is_empty() || running.gpu(cuda).is_none() {
        return;
    }
    // So that the host function need not ask CUDA whose descriptor there is.
    let _ = Uvm::process().backend();
    // SAFETY: the data is a number, good for ever. An error is left to the launch
    // that follows, which will meet it too.
    let _ = unsafe { cuda.host_func(stream, carry_out, data as *mut c_void) };
}

/// Bits of a launch's number in what a host function is given. The epoch is above: a launch
/// of 2^16 ranges before counts as one of this range.
const LAUNCH_BITS: u32 = 48;

impl Running {
    const fn new(plan: &'static Plan) -> Self {
        Self {
            plan,
            base: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            gpu: OnceLock::new(),
            moves: OnceLock::new(),
            in_range: PerProcess::new(Mutex::default),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        let lock = self.in_range.get().lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn allocated(&self, base: u64, size: usize) {
        // Only then for the lock, which may be held for long.
        if (size as u64) < self.plan.span() || self.base.load(Relaxed) != 0 {
            return;
        }
        let _changing = self.lock();
        if self.base.load(Relaxed) == 0 {
            self.epoch.fetch_add(1, Relaxed);
            self.launches.store(0, Relaxed);
            self.base.store(base, Relaxed);
        }
    }

    fn freed(&self, which: impl Fn(u64) -> bool) {
        let gone = || Some(self.base.load(Relaxed)).filter(|&base| base != 0 && which(base));
        if gone().is_none() {
            return;
        }
        let _changing = self.lock();
        if gone().is_some() {
            self.base.store(0, Relaxed);
        }
    }

    /// Counts a launch: its number, and what its host function is given.
    fn launched(&self) -> (u64, u64) {
        // The epoch first: if it changes in between, the host function does nothing.
        let epoch = self.epoch.load(Acquire);
        let n = self.launches.fetch_add(1, Relaxed) & ((1 << LAUNCH_BITS) - 1);
        (n, epoch << LAUNCH_BITS | n)
    }

    /// Does something with the number of a launch and the range in which it was, which is
    /// not freed meanwhile; nothing if it is gone.
    fn in_range<T>(&self, data: u64, work: impl FnOnce(u64, u64) -> T) -> Option<T> {
        let _in_range = self.lock();
        let base = self.base.load(Relaxed);
        let same = data >> LAUNCH_BITS == self.epoch.load(Relaxed) << LAUNCH_BITS >> LAUNCH_BITS;
        (base != 0 && same).then(|| work(data & ((1 << LAUNCH_BITS) - 1), base))
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
unsafe extern "C" fn carry_out(data: *mut c_void) {
    static SAID: Once = Once::new();
    let Some(running) = running() else { return };
    let uvm = Uvm::process();
    let moves = running.moves.get_or_init(|| Moves::new(uvm).ok());
    let (Some(moves), Some(&gpu)) = (moves, running.gpu.get()) else {
        return;
    };
    // SAFETY: the range is not freed meanwhile. That the plan is for this program, and drops
    // only what no kernel reads, is for who gave it to say.
    let done = running.in_range(data as u64, |n, base| unsafe {
        uvm.carry_out(running.plan.before(n), base, gpu, moves)
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
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    const SPAN: usize = 4096;

    fn running() -> Running {
        let plan = format!("uvmplan 1\nkernels 1\nspan {SPAN}\nat 0 free 0 0 4096\n");
        Running::new(Box::leak(Box::new(Plan::parse(&plan).unwrap())))
    }

    /// The range in which a launch's requests are carried out.
    fn range(running: &Running, data: u64) -> Option<(u64, u64)> {
        running.in_range(data, |n, base| (n, base))
    }

    #[test]
    fn what_was_launched_in_one_range_does_nothing_in_the_next() {
        let running = running();
        running.allocated(1 << 21, SPAN);
        let (first, second) = (running.launched().1, running.launched().1);
        assert_eq!(range(&running, first), Some((0, 1 << 21)));
        running.freed(|base| base == 1 << 22);
        assert_eq!(range(&running, second), Some((1, 1 << 21)));
        running.freed(|base| base == 1 << 21);
        assert_eq!(range(&running, second), None);
        // At the same address, as CUDA gives it out.
        running.allocated(1 << 21, SPAN);
        assert_eq!(range(&running, second), None);
        assert_eq!(range(&running, running.launched().1), Some((0, 1 << 21)));
        running.freed(|_| true);
        running.allocated(1 << 22, SPAN - 1);
        assert_eq!(range(&running, running.launched().1), None);
    }

    #[test]
    fn a_range_is_not_freed_while_requests_are_carried_out_in_it() {
        let running = running();
        running.allocated(1 << 21, SPAN);
        let data = running.launched().1;
        let freed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let done = running.in_range(data, |_, _| {
                scope.spawn(|| {
                    running.freed(|_| true);
                    freed.store(true, Relaxed);
                });
                std::thread::sleep(Duration::from_millis(200));
                freed.load(Relaxed)
            });
            assert_eq!(done, Some(false));
        });
        assert!(freed.load(Relaxed));
        assert_eq!(range(&running, data), None);
    }
}
