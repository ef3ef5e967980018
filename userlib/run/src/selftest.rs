// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `uvmrun --selftest`: writes, moves and discards managed memory on the first GPU, and
//! compares what is there with what should be: by calls that wait, in a stream, and in a graph.
//! It is for a real GPU; the tests run it on the stub.
//!
//! All that calls CUDA is in a child process. A call that never returns, in CUDA or in the kernel,
//! keeps that process from ending, whatever is done to it; nobody waits for it.

use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use uvmrust::{Backend, Error, Mode, Outcome, Place};

mod child;
mod gpu;
mod graphs;
mod saved;

pub(crate) use child::run_child;

use gpu::{Gpu, Tested};

/// Why a test did not end well.
enum Flaw {
    /// There is nothing that could be tested.
    Not(String),
    Wrong(String),
}

impl From<String> for Flaw {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

/// What is said of the tests, from a thread to another, or by a process.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// A test begins, of this name.
    Begins(String),
    /// A line of the page, without its end.
    Line(String),
    /// All tests are done, with this exit status.
    Done(u8),
}

const RIGHT: &str =
    "\nAll that was tested is right. A discard that drops nothing is right, too: \"dropped\" says \
                     how much goes.\n";
const NO_DISCARD: &str =
    "\nWhat was tested is right, but no discard could be tested: `uvmrun --check` says why.\n";
const NOTHING: &str = "\nNothing was tested: do what `uvmrun --check` says.\n";
const WRONG: &str = "\nDo not use discard on this machine. Please report this page, with what \
                     `uvmrun --check` prints.\n";

/// How long all tests together may take. They take some seconds; a call that never returns is what
/// ends here.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs all tests; gives what is to be printed, and the exit status: 0 if all is right, 1 if
/// something is wrong or does not end, 2 if no discard could be tested.
pub(crate) fn run() -> (String, u8) {
    let set = std::env::var("UVMRUST_SELFTEST_MS").ok();
    let set = set.and_then(|text| text.parse().ok());
    bounded(set.map_or(LIMIT, Duration::from_millis), child::relay)
}

/// The page of what `tests` says until it is done, or until the limit is over: then its thread is
/// left alone, since nothing can end a call that waits for a GPU.
fn bounded(limit: Duration, tests: impl FnOnce(&Sender<Said>) + Send + 'static) -> (String, u8) {
    let (sender, receiver) = channel();
    let began = Instant::now();
    std::thread::spawn(move || tests(&sender));
    let mut page = String::new();
    let mut at = "start".to_owned();
    loop {
        let why = match receiver.recv_timeout(limit.saturating_sub(began.elapsed())) {
            Ok(Said::Begins(name)) => {
                at = name;
                continue;
            }
            Ok(Said::Line(line)) => {
                page.push_str(&line);
                page.push('\n');
                continue;
            }
            Ok(Said::Done(status)) => return (page, status),
            Err(RecvTimeoutError::Timeout) => {
                format!("not done {} s after the start", limit.as_secs_f64())
            }
            Err(RecvTimeoutError::Disconnected) => "the tests have ended early".to_owned(),
        };
        page.push_str(&line('!', &at, &format!("WRONG: {why}")));
        page.push('\n');
        page.push_str(WRONG);
        return (page, 1);
    }
}

/// A line of the page.
fn line(mark: char, topic: &str, says: &str) -> String {
    let topic = format!("{topic}:");
    format!("{mark} {topic:<26}{says}")
}

fn tests(say: &Sender<Said>) {
    // Nobody listens any more if the limit is over.
    let page = |line| drop(say.send(Said::Line(line)));
    let begins = |name: &str| drop(say.send(Said::Begins(name.to_owned())));
    let done = |end: &str, status| {
        end.lines().for_each(|line| page(line.to_owned()));
        drop(say.send(Said::Done(status)));
    };
    let gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(why) => {
            page(format!("! {why}"));
            return done(NOTHING, 2);
        }
    };
    begins("backend");
    page(line(' ', "backend", backend_name(gpu.uvm.backend())));
    let (mut wrong, mut discards) = (false, false);
    for Test {
        name,
        discards: this,
        test,
    } in TESTS
    {
        begins(name);
        let began = Instant::now();
        let tested = test(&gpu);
        let took = began.elapsed().as_millis();
        page(match tested {
            Ok(()) => {
                discards |= this;
                line(' ', name, &format!("right ({took} ms)"))
            }
            Err(Flaw::Not(why)) => line(' ', name, &format!("not tested: {why}")),
            Err(Flaw::Wrong(why)) => {
                wrong = true;
                line('!', name, &format!("WRONG: {why}"))
            }
        });
    }
    begins("dropped");
    match gpu.saved() {
        Ok(saved) => saved
            .iter()
            .for_each(|says| page(line(' ', "dropped", says))),
        Err(Flaw::Not(_)) => (),
        Err(Flaw::Wrong(why)) => {
            wrong = true;
            page(line('!', "dropped", &format!("WRONG: {why}")));
        }
    }
    begins("free");
    drop(gpu);
    match (wrong, discards) {
        (true, _) => done(WRONG, 1),
        (false, true) => done(RIGHT, 0),
        (false, false) => done(NO_DISCARD, 2),
    }
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::None => "none: nobody discards here",
        Backend::UvmRust => "uvm-rust's driver",
        Backend::Native => "NVIDIA's driver",
        Backend::Cuda => "CUDA 13",
    }
}

struct Test {
    name: &'static str,
    /// Whether it tests a discard.
    discards: bool,
    test: fn(&Gpu) -> Result<(), Flaw>,
}

const fn of_moves(name: &'static str, test: fn(&Gpu) -> Result<(), Flaw>) -> Test {
    Test {
        name,
        discards: false,
        test,
    }
}

const fn of_discard(name: &'static str, test: fn(&Gpu) -> Result<(), Flaw>) -> Test {
    Test {
        name,
        discards: true,
        test,
    }
}

const TESTS: [Test; 13] = [
    of_moves("write", |gpu| Ok(gpu.write()?)),
    of_moves("prefetch", |gpu| Ok(gpu.prefetch()?)),
    of_discard("discard", |gpu| gpu.discards(Mode::Eager)),
    of_discard("lazy discard", |gpu| gpu.discards(Mode::Lazy)),
    of_discard("batch", Gpu::batch),
    of_discard("discard and prefetch", Gpu::with_prefetch),
    of_discard("host writes behind it", Gpu::host_writes),
    of_moves("prefetch in a stream", |gpu| gpu.in_stream(Task::Prefetch)),
    of_discard("discard in a stream", |gpu| gpu.in_stream(Task::Discard)),
    of_discard("both in a stream", |gpu| gpu.in_stream(Task::Both)),
    of_discard("discard in a graph", |gpu| gpu.in_graph(Task::Discard)),
    of_discard("both in a graph", |gpu| gpu.in_graph(Task::Both)),
    of_moves("again", |gpu| Ok(gpu.again()?)),
];

/// What is put into a stream.
#[derive(Clone, Copy)]
enum Task {
    Prefetch,
    Discard,
    Both,
}

/// What memory has before a test.
const BEFORE: u32 = 0x1111_1111;

/// The result of a call that discards.
fn discarded(done: uvmrust::Result<()>) -> Result<(), Flaw> {
    done.map_err(|error| match error {
        Error::NotSupported => Flaw::Not("nobody does it here (`uvmrun --check` says why)".into()),
        Error::Capture => Flaw::Not("who discards here does not do it in a graph".into()),
        why => Flaw::Wrong(why.to_string()),
    })
}

impl Gpu {
    fn write(&self) -> Tested {
        self.fill(self.all(), BEFORE)?;
        self.has(self.all(), BEFORE, "what the GPU wrote")
    }

    fn prefetch(&self) -> Tested {
        for (to, place) in [("the GPU", self.place()), ("the host", Place::Host)] {
            let moved = self.uvm.prefetch(self.all(), place);
            moved.map_err(|why| format!("to {to}: {why}"))?;
            self.has(self.all(), BEFORE, "what was moved")?;
        }
        Ok(())
    }

    fn discards(&self, mode: Mode) -> Result<(), Flaw> {
        // SAFETY: nothing is read of it before it is written again, after a prefetch.
        discarded(unsafe { self.uvm.discard(self.middle(), mode) })?;
        if mode == Mode::Lazy {
            let moved = self.uvm.prefetch(self.middle(), self.place());
            moved.map_err(|why| format!("prefetch of what was discarded: {why}"))?;
        }
        Ok(self.takes(0x2222_2222)?)
    }

    fn batch(&self) -> Result<(), Flaw> {
        let mut outcome = Outcome::default();
        let parts = self.parts();
        // SAFETY: nothing is read of it before it is written again.
        discarded(unsafe { self.uvm.discard_batch(&parts, Mode::Eager, &mut outcome) })?;
        if outcome.done != parts.len() {
            let (done, of) = (outcome.done, parts.len());
            return Err(Flaw::Wrong(format!("{done} of {of} ranges were discarded")));
        }
        Ok(self.takes(0x3333_3333)?)
    }

    fn with_prefetch(&self) -> Result<(), Flaw> {
        let (parts, place) = (self.parts(), self.place());
        // SAFETY: nothing is read of it before it is written again.
        discarded(unsafe { self.uvm.discard_and_prefetch_batch(&parts, place) })?;
        Ok(self.takes(0x4444_4444)?)
    }

    /// What the CPU writes behind a discard is there when it has been on the GPU.
    fn host_writes(&self) -> Result<(), Flaw> {
        // SAFETY: nothing is read of it before it is written again.
        discarded(unsafe { self.uvm.discard(self.middle(), Mode::Eager) })?;
        self.host_fills(self.middle(), 0x8888_8888);
        for place in [self.place(), Place::Host] {
            let moved = self.uvm.prefetch(self.all(), place);
            moved.map_err(|why| Flaw::Wrong(format!("a prefetch behind it: {why}")))?;
        }
        Ok(self.kept(0x8888_8888)?)
    }

    /// What was discarded takes what is written, and nothing beside it has changed.
    fn takes(&self, word: u32) -> Tested {
        self.fill(self.middle(), word)?;
        self.sides(BEFORE)?;
        let moved = self.uvm.prefetch(self.all(), Place::Host);
        moved.map_err(|why| format!("to the host: {why}"))?;
        self.kept(word)
    }

    /// What was written behind a discard is there, and nothing beside it has changed.
    fn kept(&self, word: u32) -> Tested {
        self.has(
            self.middle(),
            word,
            "what was written behind what was tested",
        )?;
        self.sides(BEFORE)
    }

    /// Puts a task into the stream.
    fn queue(&self, task: Task) -> Result<(), Flaw> {
        let (parts, place, stream) = (self.parts(), self.place(), self.stream);
        // SAFETY: a stream of our own; behind a discard the memory is written before it is read, in
        // the stream's order.
        discarded(unsafe {
            match task {
                Task::Prefetch => self.uvm.prefetch_batch_async(&parts, place, stream),
                Task::Discard => self.uvm.discard_async(&parts, Mode::Eager, stream),
                Task::Both => self
                    .uvm
                    .discard_and_prefetch_batch_async(&parts, place, stream),
            }
        })
    }

    /// What comes later in the stream is kept, as nothing before it is.
    fn in_stream(&self, task: Task) -> Result<(), Flaw> {
        self.put(self.all(), BEFORE)?;
        let queued = self.queue(task);
        self.put(self.middle(), 0x5555_5555)?;
        // SAFETY: a stream of our own.
        let moved = unsafe {
            self.uvm
                .prefetch_async(self.all(), Place::Host, self.stream)
        };
        self.wait()?;
        queued?;
        moved.map_err(|why| format!("to the host, in the stream: {why}"))?;
        self.no_error_later()?;
        Ok(self.kept(0x5555_5555)?)
    }

    /// A graph does it at each of its launches.
    fn in_graph(&self, task: Task) -> Result<(), Flaw> {
        let graphs = self.graphs.as_ref();
        let graphs = graphs.map_err(|why| Flaw::Not(why.clone()))?;
        let work = || {
            self.queue(task)?;
            Ok(self.put(self.middle(), 0x6666_6666)?)
        };
        graphs.capture(self, work, |launch| {
            // Once it is read where it is, and once behind a move.
            for moves in [false, true] {
                self.fill(self.all(), BEFORE)?;
                launch()?;
                self.no_error_later()?;
                if moves {
                    let moved = self.uvm.prefetch(self.all(), Place::Host);
                    moved.map_err(|why| format!("to the host: {why}"))?;
                }
                self.kept(0x6666_6666)?;
            }
            Ok(())
        })
    }

    fn no_error_later(&self) -> Tested {
        let later = self.uvm.take_stream_error();
        later.map_err(|why| format!("in the stream: {why}"))
    }

    /// What was written last is still there on the GPU's side.
    fn again(&self) -> Tested {
        self.fill(self.all(), 0x7777_7777)?;
        let moved = self.uvm.prefetch(self.all(), self.place());
        moved.map_err(|why| format!("to the GPU: {why}"))?;
        self.has(self.all(), 0x7777_7777, "what was written last")
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn what_does_not_end_is_told_of() {
        let (page, status) = bounded(Duration::from_secs(2), |say| {
            let _ = say.send(Said::Line("said before".into()));
            let _ = say.send(Said::Begins("batch".into()));
            loop {
                std::thread::park();
            }
        });
        let says = "said before\n! batch:                    WRONG: not done 2 s after the start\n";
        assert!(status == 1 && page.starts_with(says), "{page}");
        assert!(page.ends_with(WRONG), "{page}");
        let (page, status) = bounded(LIMIT, |_| ());
        assert!(status == 1 && page.contains("ended early"), "{page}");
    }
}
