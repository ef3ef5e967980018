// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A plan that is carried out while the program runs (`UVMRUST_PLAN`).
//!
//! The plan's range is the first managed allocation that is large enough for its span;
//! the program has its tensors there where the plan says. From then on each launch is a
//! kernel of the step: what the plan asks for before it is done by a host function, in the
//! order of the stream, just before the kernel. It is for one stream, and for the GPU that
//! is current at the first launch.

use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Once, OnceLock};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::plan::Plan;
use uvmrust::{Moves, Uvm};

use crate::config::Config;

/// A plan under way.
struct Running {
    plan: Plan,
    /// Where its range begins; 0: the program has none yet.
    base: AtomicU64,
    /// Launches since then.
    launches: AtomicU64,
    gpu: OnceLock<[u8; 16]>,
    /// Made by the first launch that asks for something; `None`: there is no thread for it.
    moves: OnceLock<Option<Moves>>,
}

/// The process's plan, if it was given one that can be read.
fn running() -> Option<&'static Running> {
    static RUNNING: OnceLock<Option<Running>> = OnceLock::new();
    let path = Config::get().plan.as_ref()?;
    let read = || {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Plan::parse(&text).map_err(|error| error.to_string())
    };
    let start = || match read() {
        Ok(plan) => Some(Running {
            plan,
            base: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            gpu: OnceLock::new(),
            moves: OnceLock::new(),
        }),
        Err(why) => {
            eprintln!("uvmrust: UVMRUST_PLAN={}: {why}", path.display());
            None
        }
    };
    RUNNING.get_or_init(start).as_ref()
}

/// Says that there is a new managed allocation: it may be the plan's range.
pub(crate) fn allocated(base: u64, size: usize) {
    let Some(running) = running() else { return };
    let fits = size as u64 >= running.plan.span();
    if fits && running.base.load(Relaxed) == 0 {
        running.launches.store(0, Relaxed);
        running.base.store(base, Relaxed);
    }
}

/// Says that an address is about to be free. If it was the plan's range, the next one that
/// fits begins anew.
pub(crate) fn freed(base: u64) {
    if let Some(running) = running() {
        let _ = running.base.compare_exchange(base, 0, Relaxed, Relaxed);
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
    let n = running.launches.fetch_add(1, Relaxed);
    if running.plan.before(n).is_empty() || running.gpu(cuda).is_none() {
        return;
    }
    // SAFETY: the data is a number, good for ever. An error is left to the launch
    // that follows, which will meet it too.
    let _ = unsafe { cuda.host_func(stream, carry_out, n as *mut c_void) };
}

impl Running {
    fn gpu(&self, cuda: &Cuda) -> Option<[u8; 16]> {
        if let Some(&known) = self.gpu.get() {
            return Some(known);
        }
        let uuid = cuda.uuid_of(cuda.current_device().ok()?).ok()?;
        Some(*self.gpu.get_or_init(|| uuid))
    }
}

/// Runs in the stream before launch number `n`. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn carry_out(n: *mut c_void) {
    static SAID: Once = Once::new();
    let Some(running) = running() else { return };
    let uvm = Uvm::process();
    let moves = running.moves.get_or_init(|| Moves::new(uvm).ok());
    let (Some(moves), Some(&gpu)) = (moves, running.gpu.get()) else {
        return;
    };
    let base = running.base.load(Relaxed);
    if base == 0 {
        return;
    }
    // SAFETY: freeing the range waits for the kernels that use it. That the plan is for
    // this program, and drops only what no kernel reads, is for who gave it to say.
    let done = unsafe { uvm.carry_out(running.plan.before(n as u64), base, gpu, moves) };
    if let Err(error) = done.and(moves.errors().1.map_or(Ok(()), Err)) {
        SAID.call_once(|| eprintln!("uvmrust: the plan is not carried out in full: {error}"));
    }
}
