// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A record of the program (`UVMRUST_RECORD`), by [`Record`], with times of CUDA's events. By these
//! times it is known which launch a fault is of.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::follow::Allocation;
use uvmrust::record::{Answer, Closed, End, Question, Record};
use uvmrust::{PerProcess, Uvm};

use crate::config::Config;
use crate::kernels::{Launch, KERNELS};
use crate::memory;
use crate::say::say;

mod lock;
mod timing;

use lock::{Guard, Lock};
use timing::{Pair, Ran, Timing};

/// What is known of the process so far.
struct Known {
    record: Record,
    timing: Timing,
}

/// Who records the process.
struct Recorder {
    /// No function of CUDA's that may run others' code, or wait for them, is called under it, nor is UVM's tools
    /// interface opened or closed.
    known: Lock<Known>,
    /// Who has it asks CUDA when launches ran. No event is forgotten meanwhile. It is taken before the other.
    turn: Lock<()>,
    end: Arc<End>,
}

thread_local! {
    static KNOWN_HELD: Cell<usize> = const { Cell::new(0) };
    static TURN_HELD: Cell<usize> = const { Cell::new(0) };
}

static RECORDER: PerProcess<Option<Recorder>> = PerProcess::new(Recorder::new);

/// So many launches are made before CUDA is asked which are done. A program that is killed has no
/// times of as many at its end.
const MANY: usize = 16;

/// How long the end of the process waits for a thread that records something.
const AT_MOST: Duration = Duration::from_secs(2);

/// The recorder of this process, if there is to be a record.
fn recorder() -> Option<&'static Recorder> {
    static AT_EXIT: AtomicBool = AtomicBool::new(false);
    Config::get().record.as_ref()?;
    let recorder = RECORDER.get().as_ref()?;
    // Not before CUDA is initialised, so that this runs before what CUDA does at exit.
    if !AT_EXIT.swap(true, Relaxed) {
        // SAFETY: the function is there as long as the process: nothing unloads a preload.
        let _ = unsafe { libc::atexit(finish) };
    }
    Some(recorder)
}

/// What is left to do where no lock is held: to say something, since who reads it may be in need of the lock
/// first; and to close UVM's tools interface.
#[must_use]
struct Left(Option<String>, Closed);

impl Left {
    fn done(self) {
        let Self(message, closed) = self;
        if let Some(message) = message {
            say(message);
        }
        drop(closed);
    }
}

/// Says that there is a new managed allocation.
pub(crate) fn allocated(base: u64, size: usize) {
    if let Some(recorder) = recorder() {
        recorder.with(|known| known.record.allocated(base, size as u64));
    }
}

/// The allocation that begins at an address which is about to be freed.
pub(crate) fn begins(base: u64) -> Option<Allocation> {
    recorder()?.with(|known| known.record.begins(base))?
}

/// Says that an allocation is freed. Another may be in its place already.
pub(crate) fn freed(gone: Allocation) {
    if let Some(recorder) = recorder() {
        recorder.with(|known| known.record.freed(gone));
    }
}

/// The allocations that are not freed.
pub(crate) fn all() -> Vec<Allocation> {
    let all = recorder().and_then(|recorder| recorder.with(|known| known.record.all()));
    all.unwrap_or_default()
}

/// Writes the times that are known, before a context may go with its events.
pub(crate) fn context_may_go(cuda: &Cuda) {
    if let Some(recorder) = recorder() {
        recorder.harvest(cuda, recorder.turn.lock(None), None);
    }
}

/// Gives all events back to CUDA before a context may go with its own, since which these are is not
/// known here. Once it is gone, another thread may ask CUDA of launches, or have a context of the
/// same handle.
pub(crate) fn events_go(cuda: &Cuda) {
    let Some(recorder) = recorder() else { return };
    let forgotten = {
        // Where another thread asks CUDA of them, that is over first.
        let _turn = recorder.turn.lock(None);
        recorder.with(|known| known.timing.forget())
    };
    timing::destroy(cuda, forgotten.unwrap_or_default());
}

/// Says that a context goes, or is gone, with the memory that was allocated in it.
pub(crate) fn memory_goes() {
    if let Some(recorder) = recorder() {
        recorder.with(|known| known.record.let_go());
    }
}

/// Records a launch that is about to be made, of a kernel or, if there is none, of a graph; and
/// begins to take its time. `None`: nothing is recorded, as while a graph is being captured:
/// its launch will be.
///
/// # Safety
/// `stream` is a stream of the current context, or a special one; `launch` is of a call of
/// cuLaunchKernel.
pub(crate) unsafe fn begin(cuda: &Cuda, stream: Stream, launch: Option<Launch>) -> Option<Begun> {
    let recorder = recorder()?;
    // SAFETY: by our contract.
    if unsafe { memory::is_capturing(cuda, stream) } {
        return None;
    }
    let context = timing::current(cuda);
    // SAFETY: by our contract.
    let made = unsafe { recorder.launched(cuda, stream, launch, context)? };
    let number = made.number;
    if made.is_due {
        // Who finds another thread at it leaves it to that.
        recorder.harvest(cuda, recorder.turn.lock(Some(Instant::now())), None);
    }
    // SAFETY: by our contract.
    match unsafe { timing::begin(cuda, stream, context, made.spare) } {
        Ok(begun) => Some(Begun {
            recorder,
            number,
            begun,
        }),
        Err(pair) => {
            recorder.with(|known| known.has_no_time(number, pair));
            None
        }
    }
}

/// Ends what [`begin`] has begun, behind the launch; `launched`: CUDA has taken it.
///
/// # Safety
/// `stream` is the launch's.
pub(crate) unsafe fn end(cuda: &Cuda, stream: Stream, begun: Option<Begun>, launched: bool) {
    let Some(begun) = begun else { return };
    // SAFETY: by our contract.
    let done = unsafe { timing::end(cuda, stream, begun.begun, launched) };
    begun.recorder.with(|known| match done {
        Ok(done) => {
            let oldest = known.timing.keep(begun.number, done);
            if let Some(launch) = oldest {
                known.record.not_timed(launch);
            }
        }
        Err(pair) => known.has_no_time(begun.number, Some(pair)),
    });
}

/// A launch that is being made.
pub(crate) struct Begun {
    recorder: &'static Recorder,
    /// Its number in the record.
    number: u64,
    begun: timing::Begun,
}

/// A launch that is in the record.
struct Made {
    number: u64,
    spare: Option<Pair>,
    /// Whether CUDA is to be asked which launches are done.
    is_due: bool,
}

impl Recorder {
    /// `None`: there is to be none.
    fn new() -> Option<Self> {
        let config = Config::get();
        let mut record = Record::new(config.record.as_ref()?);
        if config.record_faults {
            record.look_for_faults(Uvm::process());
        }
        let end = record.end_of_file();
        let timing = Timing::default();
        Some(Self {
            known: Lock::new(&KNOWN_HELD, Known { record, timing }),
            turn: Lock::new(&TURN_HELD, ()),
            end,
        })
    }

    /// Does something with what is known, and gives what is left to do. `None`: this is in the midst of another
    /// call, in a signal handler, or what is known is not to be had until a deadline. Then the record ends here.
    fn locked<T>(
        &self,
        deadline: Option<Instant>,
        act: impl FnOnce(&mut Known) -> T,
    ) -> Option<(T, Left)> {
        if self.end.is_cut() {
            return None;
        }
        let Some(mut known) = self.known.lock(deadline) else {
            self.end.cut();
            return None;
        };
        let done = act(&mut known);
        let left = Left(known.record.message(), known.record.closed());
        Some((done, left))
    }

    /// The same where no other lock is held: what is left to do is done.
    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> Option<T> {
        self.with_until(None, act)
    }

    fn with_until<T>(
        &self,
        deadline: Option<Instant>,
        act: impl FnOnce(&mut Known) -> T,
    ) -> Option<T> {
        let (done, left) = self.locked(deadline, act)?;
        left.done();
        Some(done)
    }

    /// Writes a launch. UVM is asked before, if it is to be asked whether it tells of faults.
    ///
    /// # Safety
    /// As for [`begin`].
    unsafe fn launched(
        &self,
        cuda: &Cuda,
        stream: Stream,
        launch: Option<Launch>,
        context: Handle,
    ) -> Option<Made> {
        let mut answer = None;
        loop {
            // All at once: a lock and a look at the process cost as much as the rest.
            let mut record = |name: &str, words: Option<&mut dyn Iterator<Item = u64>>| {
                self.locked(None, |known| {
                    known.ask(answer.take())?;
                    let number = known.record.launched(stream.addr(), name, words);
                    Ok::<_, Question>(Made {
                        number,
                        spare: known.timing.spare(context),
                        is_due: known.timing.is_due(MANY),
                    })
                })
            };
            let (made, left) = match launch {
                // SAFETY: by our contract.
                Some(launch) if !launch.function.is_null() => unsafe {
                    let known = |name: &str, words: &mut dyn Iterator<Item = u64>| {
                        record(name, Some(words))
                    };
                    KERNELS.get().look(cuda, launch, known)
                },
                Some(_) => return None,
                None => record("graph", None),
            }?;
            left.done();
            match made {
                Ok(made) => return Some(made),
                Err(question) => answer = Some(question.ask()),
            }
        }
    }

    /// Asks CUDA when launches ran, in this thread's turn, and writes that.
    fn harvest(&self, cuda: &Cuda, turn: Option<Guard<'_, ()>>, deadline: Option<Instant>) {
        let Some(_turn) = turn else { return };
        let question = self.with_until(deadline, |known| known.timing.question());
        let Some(mut question) = question else { return };
        question.ask(cuda);
        self.with_until(deadline, |known| {
            for (launch, ran) in known.timing.answered(question) {
                known.told(launch, ran);
            }
        });
    }
}

impl Known {
    /// Gives UVM's answer on, or what it is to be asked, which nobody does here.
    fn ask(&mut self, answer: Option<Answer>) -> Result<(), Question> {
        match answer {
            Some(answer) => self.record.answered(answer),
            None => self.record.asks().map_or(Ok(()), Err)?,
        }
        Ok(())
    }

    /// Writes when a launch ran, or that it is not known.
    fn told(&mut self, launch: u64, ran: Option<Ran>) {
        match ran {
            Some(Ran { from, ns }) => {
                self.record.took(launch, ns);
                self.record.ran(launch, from, from.saturating_add(ns));
            }
            None => self.record.not_timed(launch),
        }
    }

    /// There is no time of a launch; its events, if it has any, are the next one's.
    fn has_no_time(&mut self, launch: u64, pair: Option<Pair>) {
        if let Some(pair) = pair {
            self.timing.give_back(pair);
        }
        self.record.not_timed(launch);
    }
}

/// Writes the times that are known at the end. What still runs has none: nobody waits for it
/// here. Where a thread is in the midst of a call that it records, and does not come to its end,
/// the record is cut: this may be a signal handler of the same thread.
extern "C" fn finish() {
    let (Some(recorder), Some(real)) = (RECORDER.get(), crate::real::Real::get()) else {
        return;
    };
    let deadline = Some(Instant::now() + AT_MOST);
    let turn = recorder.turn.lock(deadline);
    if turn.is_none() {
        recorder.end.cut();
    }
    recorder.harvest(&real.cuda, turn, deadline);
    recorder.with_until(deadline, |known| known.record.end());
}

/// A handle of CUDA's, which any thread may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(*mut c_void);

// SAFETY: CUDA takes its handles from any thread; nobody looks behind them here.
unsafe impl Send for Handle {}
