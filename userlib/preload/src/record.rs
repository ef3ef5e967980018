// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A record of the program (`UVMRUST_RECORD`), by [`Record`], with times of CUDA's events. By these
//! times it is known which launch a fault is of.

use core::ffi::c_void;
use std::io::Write as _;
use std::sync::{Mutex, Once, PoisonError};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::follow::Allocation;
use uvmrust::record::Record;
use uvmrust::{PerProcess, Uvm};

use crate::config::Config;
use crate::kernels::{Launch, KERNELS};
use crate::memory;

mod timing;

use timing::{Ran, Timing};

/// What is known of the process so far.
struct Recorder {
    record: Record,
    timing: Timing,
}

static RECORDER: PerProcess<Option<Mutex<Recorder>>> = PerProcess::new(Recorder::new);

/// The recorder of this process, if there is to be a record.
fn recorder() -> Option<&'static Mutex<Recorder>> {
    static AT_EXIT: Once = Once::new();
    Config::get().record.as_ref()?;
    let recorder = RECORDER.get().as_ref()?;
    // Not before CUDA is initialised, so that this runs before what CUDA does at exit.
    AT_EXIT.call_once(|| {
        // SAFETY: the function is there as long as the process: nothing unloads a preload.
        let _ = unsafe { libc::atexit(finish) };
    });
    Some(recorder)
}

/// Does something with the recorder, locked, and gives what is to be said. No function of CUDA's that
/// may run others' code is called meanwhile.
fn locked<T>(recorder: &Mutex<Recorder>, act: impl FnOnce(&mut Recorder) -> T) -> (T, Message) {
    let mut locked = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    let done = act(&mut locked);
    (done, Message(locked.record.message()))
}

/// The same where no other lock is held: what is to be said is said.
fn with<T>(recorder: &Mutex<Recorder>, act: impl FnOnce(&mut Recorder) -> T) -> T {
    let (done, message) = locked(recorder, act);
    message.say();
    done
}

/// What is to be said where no lock is held: who reads it may be in need of the lock first.
#[must_use]
struct Message(Option<String>);

impl Message {
    fn say(self) {
        if let Some(message) = self.0 {
            // Not `eprintln`, which panics where nobody reads.
            let _ = writeln!(std::io::stderr(), "uvmrust: {message}");
        }
    }
}

/// Says that there is a new managed allocation.
pub(crate) fn allocated(base: u64, size: usize) {
    if let Some(recorder) = recorder() {
        with(recorder, |r| r.record.allocated(base, size as u64));
    }
}

/// The allocation that begins at an address which is about to be freed.
pub(crate) fn begins(base: u64) -> Option<Allocation> {
    with(recorder()?, |r| r.record.begins(base))
}

/// Says that an allocation is freed. Another may be in its place already.
pub(crate) fn freed(gone: Allocation) {
    if let Some(recorder) = recorder() {
        with(recorder, |r| r.record.freed(gone));
    }
}

/// The allocations that are not freed.
pub(crate) fn all() -> Vec<Allocation> {
    recorder().map_or_else(Vec::new, |recorder| with(recorder, |r| r.record.all()))
}

/// Writes the times that are known, before a context may go with its events.
pub(crate) fn context_may_go(cuda: &Cuda) {
    if let Some(recorder) = recorder() {
        with(recorder, |r| r.harvest(cuda, 0));
    }
}

/// Says that a context goes, with its events: none is used any more, since which are its own is not
/// known here.
pub(crate) fn context_goes() {
    if let Some(recorder) = recorder() {
        with(recorder, |r| {
            r.timing.forget();
            r.record.let_go();
        });
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
    // All at once: a lock and a look at the process cost as much as the rest.
    let record = |name: &str, words: Option<&mut dyn Iterator<Item = u64>>| {
        locked(recorder, |r| {
            let number = r.record.launched(stream.addr(), name, words);
            r.harvest(cuda, MANY);
            (number, r.timing.spare(context))
        })
    };
    // What is known of kernels is locked, too, while a launch is written.
    let ((number, spare), message) = match launch {
        // SAFETY: by our contract.
        Some(launch) if !launch.function.is_null() => unsafe {
            let known =
                |name: &str, words: &mut dyn Iterator<Item = u64>| record(name, Some(words));
            KERNELS.get().look(cuda, launch, known)
        },
        Some(_) => return None,
        None => record("graph", None),
    };
    message.say();
    // SAFETY: by our contract.
    let Some(begun) = (unsafe { timing::begin(cuda, stream, context, spare) }) else {
        with(recorder, |r| r.record.not_timed(number));
        return None;
    };
    Some(Begun {
        recorder,
        number,
        begun,
    })
}

/// Ends what [`begin`] has begun, behind the launch; `launched`: CUDA has taken it.
///
/// # Safety
/// `stream` is the launch's.
pub(crate) unsafe fn end(cuda: &Cuda, stream: Stream, begun: Option<Begun>, launched: bool) {
    let Some(begun) = begun else { return };
    // SAFETY: by our contract.
    let done = unsafe { timing::end(cuda, stream, begun.begun, launched) };
    with(begun.recorder, |r| {
        let not_timed = match done {
            Some(done) => r.timing.keep(begun.number, done),
            None => Some(begun.number),
        };
        not_timed.map(|launch| r.record.not_timed(launch))
    });
}

/// So many launches are made before CUDA is asked which are done. A program that is killed has no
/// times of as many at its end.
const MANY: usize = 16;

/// A launch that is being made.
pub(crate) struct Begun {
    recorder: &'static Mutex<Recorder>,
    /// Its number in the record.
    number: u64,
    begun: timing::Begun,
}

impl Recorder {
    /// `None`: there is to be none.
    fn new() -> Option<Mutex<Self>> {
        let config = Config::get();
        let mut record = Record::new(config.record.as_ref()?);
        if config.record_faults {
            record.look_for_faults(Uvm::process());
        }
        Some(Mutex::new(Self {
            record,
            timing: Timing::default(),
        }))
    }

    /// Writes the times that are known by now, if there were as many launches since the last time.
    fn harvest(&mut self, cuda: &Cuda, many: usize) {
        let Self { record, timing } = self;
        timing.harvest(cuda, many, |launch, ran| match ran {
            Some(Ran { from, ns }) => {
                record.took(launch, ns);
                record.ran(launch, from, from.saturating_add(ns));
            }
            None => record.not_timed(launch),
        });
    }
}

/// Writes the times that are known at the end. What still runs has none: nobody waits for it
/// here.
extern "C" fn finish() {
    if let (Some(recorder), Some(real)) = (recorder(), crate::real::Real::get()) {
        with(recorder, |r| {
            r.harvest(&real.cuda, 0);
            r.record.end();
        });
    }
}

/// A handle of CUDA's, which any thread may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(*mut c_void);

// SAFETY: CUDA takes its handles from any thread; nobody looks behind them here.
unsafe impl Send for Handle {}
