// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A plan that was made of a record of the program (`UVMRUST_PLAN`), which is known again by
//! its launches and allocations ([`Executor`]).
//!
//! What the plan moves before a launch is queued by a host function just before it, in its
//! stream, for a thread that makes the driver's calls. While the program is off the plan, the
//! memory is brought to the GPU that the launch's arguments point into, as far as it may be in
//! time. Nothing is ever discarded: so that memory may be freed, and be others', before a move
//! of it is made, to whom it is advice like any.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::follow::{Allocation, Executor, Queued};
use uvmrust::{Error, Failed, PerProcess, Uvm};

use crate::config::Config;
use crate::kernels::{Launch, KERNELS};
use crate::planned;
use crate::say::say;

/// The plan, and where in it the program is.
struct Following {
    executor: Executor<'static>,
    /// Bytes of the GPU, 0: not known yet.
    total: AtomicU64,
}

static FOLLOWING: PerProcess<Option<Following>> = PerProcess::new(Following::new);

fn following() -> Option<&'static Following> {
    Config::get().plan.as_ref()?;
    FOLLOWING.get().as_ref()
}

/// Says that there is a new managed allocation.
pub(crate) fn allocated(base: u64, size: usize) {
    if let Some(following) = following() {
        following.executor.allocated(base, size as u64);
    }
}

/// The allocation that begins at an address which is about to be freed.
pub(crate) fn begins(base: u64) -> Option<Allocation> {
    following()?.executor.begins(base)
}

/// Says that an allocation is freed. Another may be in its place already.
pub(crate) fn freed(gone: Allocation) {
    if let Some(following) = following() {
        following.executor.freed(gone);
    }
}

/// The managed allocations that are not freed.
pub(crate) fn all() -> Vec<Allocation> {
    following().map_or_else(Vec::new, |following| following.executor.all())
}

/// Takes note of a launch, of a kernel or, if there is none, of a graph, and puts what is to be
/// moved before it into its stream. While a graph is being captured nothing is launched.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one; `launch` is of a call of
/// cuLaunchKernel.
pub(crate) unsafe fn before_launch(cuda: &Cuda, stream: Stream, launch: Option<Launch>) {
    let Some(following) = following() else { return };
    // SAFETY: by our contract.
    if unsafe { crate::memory::is_capturing(cuda, stream) } {
        return;
    }
    let told = |name: &str, words: &mut dyn Iterator<Item = u64>| {
        let (pending, wanted) = following.executor.launch(name, words);
        (pending, wanted.map(|kernel| (name.to_owned(), kernel)))
    };
    let (pending, left) = match launch {
        Some(launch) if launch.function.is_null() => return,
        // SAFETY: by our contract.
        Some(launch) => unsafe { KERNELS.get().look(cuda, launch, told) },
        None => told("graph", &mut core::iter::empty()),
    };
    // Where nothing is locked: who reads it may be about to launch.
    if let Some((name, kernel)) = left {
        say_off(&name, kernel);
    }
    if pending.is_empty() || pending.is_too_much(|| following.total(cuda)) {
        return;
    }
    let Some(gpu) = (cuda.current_device().ok()).and_then(|device| cuda.uuid_of(device).ok())
    else {
        return;
    };
    // So that the host function need not ask CUDA whose descriptor there is.
    let _ = Uvm::process().backend();
    let queued = Box::into_raw(Box::new(pending.on(gpu)));
    // SAFETY: the data is the host function's, which runs once. An error is left to the
    // launch that follows, which will meet it too.
    unsafe {
        if cuda.host_func(stream, carry_out, queued.cast()).is_err() {
            drop(Box::from_raw(queued));
        }
    }
}

impl Following {
    fn new() -> Option<Self> {
        Some(Self {
            executor: Executor::new(planned::plan()?, Uvm::process())?,
            total: AtomicU64::new(0),
        })
    }

    /// Bytes of the GPU's memory.
    fn total(&self, cuda: &Cuda) -> u64 {
        let known = self.total.load(Relaxed);
        if known != 0 {
            return known;
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: the outputs are writable.
        let asked = (cuda.mem_info()).map(|call| unsafe { call(&mut free, &mut total) });
        match asked {
            Some(0) => self.total.store(total as u64, Relaxed),
            _ => return u64::MAX,
        }
        total as u64
    }
}

/// Runs in the stream before a launch. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn carry_out(data: *mut c_void) {
    // SAFETY: it was given this by `before_launch`, for this one call.
    let queued = unsafe { Box::from_raw(data.cast::<Queued>()) };
    if let Some(following) = following() {
        say_failed(following.executor.queue(&queued));
    }
}

fn say_off(name: &str, kernel: u32) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Relaxed) {
        return;
    }
    let plan = planned::plan().and_then(|plan| plan.program());
    let wanted = plan.and_then(|program| program.name(kernel as usize));
    say(format!(
        "the program leaves its plan: `{name}` is launched where the plan has kernel {kernel}, `{}`. \
         Until it is back, what kernels are given is prefetched (record it anew if it has changed)",
        wanted.unwrap_or("?")
    ));
}

fn say_failed(why: Option<Failed>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // What is freed meanwhile is no managed memory any more, and need not move.
    let Some(why) = why.filter(|why| why.error != Error::NotManaged) else {
        return;
    };
    if !SAID.swap(true, Relaxed) {
        say(format!("the plan is not carried out in full: {why}"));
    }
}
