// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A plan that was made of a record of the program (`UVMRUST_PLAN`), which is known again by
//! its launches and allocations ([`Follower`]).
//!
//! What the plan moves before a launch is queued by a host function just before it, in its
//! stream, for a thread that makes the driver's calls. While the program is off the plan, the
//! memory is brought to the GPU that the launch's arguments point into, as far as it may be in
//! time. Nothing is ever discarded: so that memory may be freed, and be others', before a move
//! of it is made, to whom it is advice like any.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::follow::{Allocation, Before, Follower, Whereto};
use uvmrust::{Error, Move, Moves, PerProcess, Ticket, Uvm};

use crate::config::Config;
use crate::kernels::{Launch, KERNELS};
use crate::planned;

/// Moves that may wait when one more is queued off the plan: what is behind so many comes too
/// late to be of use.
const MOST_WAITING: u64 = 8;

/// The plan, and where in it the program is.
struct Following {
    follower: Mutex<Follower<'static>>,
    /// Made by the first launch that moves something; `None`: there is no thread for it.
    moves: OnceLock<Option<Moves>>,
    /// The ticket of the last moves.
    last: AtomicU64,
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
        following.lock().allocated(base, size as u64);
    }
}

/// Says that an address is about to be freed.
pub(crate) fn freed(base: u64) {
    if let Some(following) = following() {
        following.lock().freed(base);
    }
}

/// Says that a context is about to be destroyed, and the memory that was allocated in it.
pub(crate) fn freed_all() {
    if let Some(following) = following() {
        following.lock().freed_all();
    }
}

/// What is to be moved before a launch.
struct Pending {
    /// Whether the program is off the plan.
    off: bool,
    moves: Vec<Move>,
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
    let (off, moves) = match launch {
        Some(launch) if launch.function.is_null() => return,
        // SAFETY: by our contract.
        Some(launch) => unsafe {
            let look =
                |name: &str, words: &mut dyn Iterator<Item = u64>| following.launch(name, words);
            KERNELS.get().look(cuda, launch, look)
        },
        None => following.launch("graph", &mut core::iter::empty()),
    };
    let bytes = moves.iter().map(|(memory, _)| memory.range.length);
    // What does not fit would only push itself out.
    if moves.is_empty() || off && bytes.sum::<u64>() > following.total(cuda) {
        return;
    }
    let Some(gpu) = (cuda.current_device().ok()).and_then(|device| cuda.uuid_of(device).ok())
    else {
        return;
    };
    // So that the host function need not ask CUDA whose descriptor there is.
    let _ = Uvm::process().backend();
    let moves = moves.into_iter().map(|(memory, to)| Move {
        range: memory.range,
        to: to.tier(gpu),
    });
    let moves = moves.collect();
    let pending = Box::into_raw(Box::new(Pending { off, moves }));
    // SAFETY: the data is the host function's, which runs once. An error is left to the
    // launch that follows, which will meet it too.
    unsafe {
        if cuda.host_func(stream, carry_out, pending.cast()).is_err() {
            drop(Box::from_raw(pending));
        }
    }
}

impl Following {
    fn new() -> Option<Self> {
        let follower = Follower::new(planned::plan()?)?;
        Some(Self {
            follower: Mutex::new(follower),
            moves: OnceLock::new(),
            last: AtomicU64::new(0),
            total: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Follower<'static>> {
        let lock = self.follower.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the program is off the plan, and what to move before the launch.
    fn launch(
        &self,
        name: &str,
        words: &mut dyn Iterator<Item = u64>,
    ) -> (bool, Vec<(Allocation, Whereto)>) {
        let mut follower = self.lock();
        let wanted = match follower.launch(name) {
            Before::Plan(moves) => return (false, moves),
            Before::Off(wanted) => wanted,
        };
        let mut used: Vec<(Allocation, Whereto)> = Vec::new();
        for found in words.filter_map(|word| follower.allocations().at(word)) {
            if !used.iter().any(|&(known, _)| known == found) {
                used.push((found, Whereto::Gpu));
            }
        }
        drop(follower);
        if let Some(kernel) = wanted {
            say_off(name, kernel);
        }
        (true, used)
    }

    /// Bytes of the GPU's memory.
    fn total(&self, cuda: &Cuda) -> u64 {
        let known = self.total.load(Relaxed);
        if known != 0 {
            return known;
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: the outputs are writable.
        let asked = (cuda.mem_info).map(|call| unsafe { call(&mut free, &mut total) });
        match asked {
            Some(0) => self.total.store(total as u64, Relaxed),
            _ => return u64::MAX,
        }
        total as u64
    }

    fn queue(&self, pending: &Pending) {
        let moves = (self.moves).get_or_init(|| Moves::new(Uvm::process()).ok());
        let Some(moves) = moves else { return };
        if pending.off && self.last.load(Relaxed) > moves.done().0 + MOST_WAITING {
            return;
        }
        let Ticket(last) = moves.submit(&pending.moves);
        self.last.store(last, Relaxed);
        say_failed(moves.errors().1);
    }
}

/// Runs in the stream before a launch. Calls nothing of CUDA, as it must not.
unsafe extern "C" fn carry_out(data: *mut c_void) {
    // SAFETY: it was given this by `before_launch`, for this one call.
    let pending = unsafe { Box::from_raw(data.cast::<Pending>()) };
    if let Some(following) = following() {
        following.queue(&pending);
    }
}

fn say_off(name: &str, kernel: u32) {
    static SAID: Once = Once::new();
    let plan = planned::plan().and_then(|plan| plan.program());
    let wanted = plan.and_then(|program| program.name(kernel as usize));
    SAID.call_once(|| {
        eprintln!(
            "uvmrust: the program leaves its plan: `{name}` is launched where the plan has \
             kernel {kernel}, `{}`. Until it is back, what kernels are given is prefetched \
             (record it anew if it has changed)",
            wanted.unwrap_or("?")
        );
    });
}

fn say_failed(why: Option<Error>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // What is freed meanwhile is no managed memory any more, and need not move.
    let Some(why) = why.filter(|why| *why != Error::NotManaged) else {
        return;
    };
    if !SAID.swap(true, Relaxed) {
        eprintln!("uvmrust: the plan is not carried out in full: {why}");
    }
}
