// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A record of the program (`UVMRUST_RECORD`): its managed allocations, its launches with the
//! allocations that their arguments point into, and how long each took. `uvmrun --record`
//! makes a trace of it, and takes it from nobody else: both are of one version.
//!
//! A line each, in the order in which the program did it, but for times, which come later:
//!
//! | line | meaning |
//! |---|---|
//! | `a BYTES` | an allocation; they are numbered from 0 |
//! | `f NUMBER` | it is freed |
//! | `k STREAM NAME USES` | a launch; they are numbered from 0. USES are numbers of allocations with commas between them; `-`: none; `?`: not known |
//! | `t NUMBER NS` | how long a launch took |

use core::ffi::c_void;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use uvmrust::cuda::{Cuda, Stream};
use uvmrust::follow::Allocations;
use uvmrust::PerProcess;

use crate::config::Config;
use crate::kernels::{Launch, KERNELS};
use crate::memory;

mod timing;

pub(crate) use timing::Begun;
use timing::Timing;

/// What is known of the process so far.
#[derive(Default)]
struct Recorder {
    out: Option<BufWriter<File>>,
    /// The file could not be made or written: it was said, and that was it.
    failed: bool,
    allocations: Allocations,
    launches: u64,
    /// By number, from 0.
    streams: Vec<usize>,
    timing: Timing,
}

static RECORDER: PerProcess<Mutex<Recorder>> = PerProcess::new(Mutex::default);

/// The recorder, if there is to be a record. No function of CUDA's that may run others' code
/// is called while it is locked.
fn recorder() -> Option<MutexGuard<'static, Recorder>> {
    Config::get().record.as_ref()?;
    let lock = RECORDER.get().lock();
    Some(lock.unwrap_or_else(PoisonError::into_inner))
}

/// Says that there is a new managed allocation.
pub(crate) fn allocated(base: u64, size: usize) {
    if let Some(mut recorder) = recorder() {
        recorder.allocations.add(base, size as u64);
        recorder.write(format_args!("a {size}"));
    }
}

/// Says that an address is about to be freed.
pub(crate) fn freed(base: u64) {
    if let Some(mut recorder) = recorder() {
        if let Some(gone) = recorder.allocations.remove(base) {
            recorder.write(format_args!("f {}", gone.number));
        }
    }
}

/// Says that a context is about to be destroyed, with its memory and its events.
pub(crate) fn freed_all() {
    if let Some(mut recorder) = recorder() {
        let gone: Vec<_> = recorder.allocations.all().collect();
        recorder.allocations.clear();
        for allocation in gone {
            recorder.write(format_args!("f {}", allocation.number));
        }
        recorder.timing.forget();
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
    Config::get().record.as_ref()?;
    // SAFETY: by our contract.
    if unsafe { memory::is_capturing(cuda, stream) } {
        return None;
    }
    let number = match launch {
        // SAFETY: by our contract.
        Some(launch) if !launch.function.is_null() => unsafe {
            let known = |name: &str, words: &mut dyn Iterator<Item = u64>| {
                recorder().map(|mut recorder| recorder.launched(stream, name, Some(words)))
            };
            KERNELS.get().look(cuda, launch, known)?
        },
        Some(_) => return None,
        None => recorder()?.launched(stream, "graph", None),
    };
    recorder()?.harvest(cuda);
    // SAFETY: by our contract.
    unsafe {
        timing::begin(cuda, stream, number, |context| {
            recorder()?.timing.spare(context)
        })
    }
}

/// Ends what [`begin`] has begun, behind the launch; `launched`: CUDA has taken it.
///
/// # Safety
/// `stream` is the launch's.
pub(crate) unsafe fn end(cuda: &Cuda, stream: Stream, begun: Option<Begun>, launched: bool) {
    let Some(begun) = begun else { return };
    // SAFETY: by our contract.
    let ended = unsafe { timing::end(cuda, stream, begun, launched) };
    if let (Some(mut recorder), Some(ended)) = (recorder(), ended) {
        recorder.timing.keep(ended);
    }
}

impl Recorder {
    fn launched(
        &mut self,
        stream: Stream,
        name: &str,
        words: Option<&mut dyn Iterator<Item = u64>>,
    ) -> u64 {
        let stream = stream.addr();
        let known = self.streams.iter().position(|&s| s == stream);
        let stream_number = known.unwrap_or_else(|| {
            self.streams.push(stream);
            self.streams.len() - 1
        });
        let mut line = format!("k {stream_number} {name} ");
        match words {
            None => line.push('?'),
            Some(words) => self.list(&mut line, words),
        }
        self.write(format_args!("{line}"));
        self.launches += 1;
        self.launches - 1
    }

    /// The allocations that these words point into, each once.
    fn list(&self, line: &mut String, words: &mut dyn Iterator<Item = u64>) {
        let mut seen = Vec::new();
        for found in words.filter_map(|word| self.allocations.at(word)) {
            if !seen.contains(&found.number) {
                let comma = if seen.is_empty() { "" } else { "," };
                let _ = write!(line, "{comma}{}", found.number);
                seen.push(found.number);
            }
        }
        if seen.is_empty() {
            line.push('-');
        }
    }

    /// Writes the times that are known by now.
    fn harvest(&mut self, cuda: &Cuda) {
        while let Some((launch, ns)) = self.timing.next(cuda) {
            self.write(format_args!("t {launch} {ns}"));
        }
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        if self.out.is_none() && !self.failed {
            self.open();
        }
        let Some(out) = &mut self.out else { return };
        if let Err(why) = writeln!(out, "{line}") {
            self.fail(&why);
        }
    }

    fn open(&mut self) {
        static AT_EXIT: Once = Once::new();
        let Some(folder) = &Config::get().record else {
            return;
        };
        match File::create(folder.join(std::process::id().to_string())) {
            Ok(file) => self.out = Some(BufWriter::new(file)),
            Err(why) => return self.fail(&why),
        }
        // Not before CUDA is initialised, so that this runs before what CUDA does at exit.
        AT_EXIT.call_once(|| {
            // SAFETY: the function is there as long as the process: nothing unloads a preload.
            let _ = unsafe { libc::atexit(finish) };
        });
    }

    fn fail(&mut self, why: &std::io::Error) {
        eprintln!("uvmrust: the program is not recorded any further: {why}");
        self.out = None;
        self.failed = true;
    }
}

/// Writes what is left. What still runs has no time: nobody waits for it here.
extern "C" fn finish() {
    let Some(mut recorder) = recorder() else {
        return;
    };
    // A child of `fork` that exits has recorded nothing, or in a file of its own.
    if recorder.out.is_none() {
        return;
    }
    if let Some(real) = crate::real::Real::get() {
        recorder.harvest(&real.cuda);
    }
    if let Some(Err(why)) = recorder.out.as_mut().map(|out| out.flush()) {
        recorder.fail(&why);
    }
}

/// A handle of CUDA's, which any thread may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(*mut c_void);

// SAFETY: CUDA takes its handles from any thread; nobody looks behind them here.
unsafe impl Send for Handle {}
