// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One random program: it is chosen, run and modelled at the same time.
//!
//! A program uses memory only where all earlier uses are ordered before it, which it
//! sees to with events; so what each read must give is what was last written, in the order
//! of the program's text. After a discard nothing is read before it is written again.

mod graphs;
mod ranges;

use core::ffi::{c_int, c_void};
use std::sync::mpsc::{channel, Receiver, Sender};

use uvmrust_torch::{
    uvmrust_torch_empty_cache, uvmrust_torch_free, uvmrust_torch_malloc,
    uvmrust_torch_record_stream, uvmrust_torch_stats, Stats,
};

use crate::cuda::{Cuda, Handle, Seen};
use crate::model::{device_of, kind_of, legacy, Access, Kind, Order, OF_DEVICE, STREAMS};
use graphs::{Capture, Graph};

extern "C" {
    fn g10_alloc(out: *mut *mut c_void, length: usize, gpu_uuid: *const [u8; 16]) -> i64;
    fn g10_free(buffer: *mut c_void, stream: Handle) -> c_int;
    fn UvmRustUseFd(fd: c_int);
    fn UvmRustStreamError() -> c_int;
    fn UvmRustDeviceUuid(device: c_int, uuid: *mut [u8; 16]) -> c_int;
}

/// `UVMRUST_ECAPTURE`: the call does not become part of a graph.
const CAPTURE: c_int = -9;
/// UVM's block: nothing smaller is discarded by the PyTorch allocator.
const LENGTH: usize = 2 << 20;
/// Buffers that graphs may use. They are never freed.
const RAW: usize = 5;
/// The generator SplitMix64, by its state: the same seed makes the same program.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Who gave the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Raw,
    G10,
    /// The allocator, for use in this stream.
    Torch(usize),
}

struct Buffer {
    base: u64,
    owner: Owner,
    written: Option<Access>,
    read: Vec<Access>,
    /// What stands there; `None`: nobody may say.
    value: Option<u64>,
    /// Must be prefetched before it is used.
    lazy: bool,
    /// Streams that PyTorch was told of.
    recorded: Vec<usize>,
}

impl Buffer {
    fn new(base: u64, owner: Owner) -> Self {
        Self {
            base,
            owner,
            written: None,
            read: Vec::new(),
            value: None,
            lazy: false,
            recorded: Vec::new(),
        }
    }

    /// What must come before a read of it, or before another use.
    fn uses(&self, writes: bool) -> impl Iterator<Item = Access> + '_ {
        let readers = self.read.iter().filter(move |_| writes);
        self.written.iter().chain(readers).copied()
    }
}

/// What kernels saw, and what they must have seen.
#[derive(Default)]
struct Check {
    seen: Box<Seen>,
    expected: Vec<u64>,
    what: String,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub actions: u64,
    pub reads: u64,
    pub discards: u64,
    pub graphs: u64,
    pub launches: u64,
    pub refused: u64,
    pub mallocs: u64,
    pub reused: u64,
    /// Discards with a prefetch, and prefetches.
    pub prepared: u64,
    pub prefetches: u64,
    /// Calls with several ranges, and with a mistake.
    pub batches: u64,
    pub mistakes: u64,
    /// Calls in a stream of a device that was not current.
    pub elsewhere: u64,
    /// Calls in no stream's order.
    pub at_once: u64,
}

type Work = Box<dyn FnOnce() + Send>;

/// Another thread of the program, which does one thing at a time, while the first waits:
/// PyTorch frees in threads of autograd's, for one.
struct Other {
    work: Sender<Work>,
    done: Receiver<()>,
}

impl Other {
    fn new() -> Self {
        let (work, todo) = channel::<Work>();
        let (tell, done) = channel();
        std::thread::spawn(move || {
            for work in todo {
                work();
                let _ = tell.send(());
            }
        });
        Self { work, done }
    }

    fn does(&self, work: impl FnOnce() + Send + 'static) {
        let _ = self.work.send(Box::new(work));
        let _ = self.done.recv();
    }
}

/// The GPUs with their streams, for all programs of a thread: two of the stub's, or a real one.
pub struct Machine {
    cuda: &'static Cuda,
    other: Other,
    /// Other threads run programs too: no captures, which forbid them their default streams.
    shared: bool,
    /// How many GPUs there are. With one, its streams alone are used, and no driver but the real.
    gpus: usize,
    uuids: [[u8; 16]; 2],
    contexts: [Handle; 2],
    streams: [Handle; STREAMS],
    raw: [u64; RAW],
    /// The driver of all programs; `None`: each has its own.
    backend: Option<String>,
    /// Each action is printed when it is put into its stream.
    trace: bool,
    /// The program waits behind each action.
    waits: bool,
    /// The model says that launches of graphs without nodes order what other launches do, which
    /// no CUDA need do.
    empty_orders: bool,
    /// It says so of events of blocking streams, too (`Order::events_wait`).
    events_wait: bool,
    pub totals: Totals,
}

impl Machine {
    pub fn new(shared: bool, gpus: usize) -> Self {
        let cuda = Box::leak(Box::new(Cuda::load()));
        let contexts = [cuda.context(0), cuda.context(gpus - 1)];
        let mut streams = [core::ptr::null_mut(); STREAMS];
        for (number, stream) in streams.iter_mut().enumerate() {
            cuda.use_context(contexts[device_of(number)]);
            *stream = match kind_of(number) {
                Kind::Legacy => core::ptr::null_mut(),
                Kind::PerThread => core::ptr::without_provenance_mut(2),
                Kind::Blocking => cuda.stream(0),
                Kind::NonBlocking => cuda.stream(1),
            };
        }
        let raw = [(); RAW].map(|()| cuda.managed(LENGTH));
        let mut uuids = [[0; 16]; 2];
        for (device, uuid) in uuids.iter_mut().take(gpus).enumerate() {
            // SAFETY: the output is writable.
            let code = unsafe { UvmRustDeviceUuid(device as c_int, uuid) };
            assert_eq!(code, 0, "the UUID of GPU {device}");
        }
        Self {
            cuda,
            gpus,
            uuids,
            other: Other::new(),
            shared,
            contexts,
            streams,
            raw,
            backend: std::env::var("BACKEND").ok(),
            trace: std::env::var_os("TRACE").is_some(),
            waits: std::env::var_os("WAIT").is_some(),
            empty_orders: std::env::var_os("EMPTY_ORDERS").is_some(),
            events_wait: std::env::var_os("EVENTS_WAIT").is_some(),
            totals: Totals::default(),
        }
    }

    /// Runs program `number`; what is wrong, if something is. The stub runs its streams in another
    /// order each `time`.
    pub fn run(&mut self, seed: u64, number: u64, time: u64) -> Result<(), String> {
        let mut random = Random(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let backend = ["ours", "native", "old"][random.below(3)];
        let backend = self.backend.as_deref().unwrap_or(backend);
        if !self.shared && self.gpus > 1 {
            std::env::set_var("STUB_UVM", backend);
            // SAFETY: a number, which the stub knows.
            unsafe { UvmRustUseFd(900) };
        }
        self.cuda.begins(number);
        self.cuda.seed(random.next().wrapping_add(time));
        let backend = backend.to_owned();
        let buffers = self.raw.map(|base| Buffer::new(base, Owner::Raw));
        let length = 10 + random.below(90);
        // Not the thread's own, which PyTorch does not use.
        let device = random.below(self.gpus);
        let another = (device + 1) % self.gpus;
        let torch_streams = [legacy(device), legacy(another) + 2 + random.below(4)];
        let order = Order::new(self.events_wait);
        let mut program = Program {
            machine: self,
            random,
            backend: backend.clone(),
            order,
            buffers: buffers.into_iter().map(Some).collect(),
            checks: Vec::new(),
            graphs: Vec::new(),
            capture: None,
            // What the time before has left in memory is never what must be read.
            next_value: 1 + (time << 8),
            torch_streams,
            // The others are what they were before: some of their numbers stand for what a GPU has found.
            calls_at_once: number % 4 == 0,
        };
        for _ in 0..length {
            program.step()?;
            if program.machine.waits && program.capture.is_none() {
                (0..program.machine.gpus).for_each(|gpu| program.wait_for_gpu(gpu));
            }
        }
        program
            .end()
            .map_err(|wrong| format!("{wrong} ({backend})"))
    }
}

struct Program<'a> {
    machine: &'a mut Machine,
    random: Random,
    /// "ours", "native" or "old": then CUDA's own discard is used; or "cuda": UVM's descriptor is
    /// not found either.
    backend: String,
    order: Order,
    buffers: Vec<Option<Buffer>>,
    checks: Vec<Check>,
    graphs: Vec<Graph>,
    capture: Option<Capture>,
    next_value: u64,
    /// Where PyTorch allocates: few, so that blocks are reused.
    torch_streams: [usize; 2],
    /// Whether calls in no stream's order are made, too. They wait, and so hide orders that are wrong.
    calls_at_once: bool,
}

impl Program<'_> {
    fn step(&mut self) -> Result<(), String> {
        self.machine.totals.actions += 1;
        if self.capture.is_some() && !self.random.one_in(4) {
            return self.captured_step();
        }
        match self.random.below(24) {
            0..=3 => self.put(),
            4..=7 => self.get(),
            8..=11 => self.ranges()?,
            12 => self.g10()?,
            13..=17 => self.torch(),
            18 => self.synchronize(),
            19 if !self.machine.shared => self.begin_capture(),
            _ => self.launch(),
        }
        Ok(())
    }

    fn wait_for_gpu(&self, gpu: usize) {
        self.enter(legacy(gpu));
        self.machine.cuda.synchronize_context();
    }

    /// Prints a line, if actions are traced.
    fn say(&self, what: impl FnOnce() -> String) {
        if self.machine.trace {
            println!("  {}", what());
        }
    }

    // Streams

    /// A stream that may be used now: none that is captured, nor a default stream with
    /// an implicit dependency on one.
    fn usable(&self, stream: usize) -> bool {
        let Some(capture) = &self.capture else {
            return true;
        };
        let blocks = |&other: &usize| {
            kind_of(other) != Kind::NonBlocking && device_of(other) == device_of(stream)
        };
        !capture.frontiers.contains_key(&stream)
            && (kind_of(stream) != Kind::Legacy || !capture.frontiers.keys().any(blocks))
    }

    fn some_gpu(&mut self) -> usize {
        self.random.below(self.machine.gpus)
    }

    /// A stream, usable or not.
    fn any_stream(&mut self) -> usize {
        self.random.below(OF_DEVICE * self.machine.gpus)
    }

    fn some_stream(&mut self) -> Option<usize> {
        // The default streams are what most programs use.
        let stream = match self.random.one_in(3) {
            true => legacy(self.some_gpu()),
            false => self.any_stream(),
        };
        self.usable(stream).then_some(stream)
    }

    /// The handle of a stream, with its device current.
    fn enter(&self, stream: usize) -> Handle {
        let context = self.machine.contexts[device_of(stream)];
        self.machine.cuda.use_context(context);
        self.machine.streams[stream]
    }

    /// Sees to it that all earlier uses of a buffer come before what is put into `stream`.
    /// `false`: it cannot be done now.
    fn wait_for_uses(&mut self, buffer: usize, stream: usize, writes: bool) -> bool {
        let Some(used) = &self.buffers[buffer] else {
            return false;
        };
        let uses: Vec<_> = used.uses(writes).collect();
        for access in uses {
            if self.order.ordered(access, stream) {
                continue;
            }
            if !self.usable(access.stream) {
                return false;
            }
            let event = self.machine.cuda.event(self.enter(access.stream));
            let recorded = self.order.record(access.stream);
            self.say(|| format!("stream {stream} waits for {}", access.stream));
            self.machine.cuda.wait(self.enter(stream), event);
            self.order.wait(stream, &recorded);
        }
        true
    }

    fn some_buffer(&mut self, fits: impl Fn(&Buffer) -> bool) -> Option<usize> {
        let at = self.random.below(self.buffers.len());
        self.buffers[at].as_ref().filter(|b| fits(b)).map(|_| at)
    }

    /// What PyTorch asks of its users: a tensor that another stream uses is recorded.
    fn tell_torch(&mut self, buffer: usize, stream: usize) {
        let Some(b) = self.buffers[buffer].as_mut() else {
            return;
        };
        let Owner::Torch(own) = b.owner else { return };
        if own == stream || b.recorded.contains(&stream) {
            return;
        }
        b.recorded.push(stream);
        let base = b.base;
        // A number is drawn that nothing is made of, so that a seed's program stays the one that a GPU found wrong.
        if device_of(stream) == device_of(own) {
            self.some_gpu();
        }
        // The same call as PyTorch's, which names no device, and makes the memory's current.
        self.enter(legacy(device_of(own)));
        let handle = self.machine.streams[stream];
        // What the recipe wires.
        if !cfg!(broken = "3") {
            uvmrust_torch_record_stream(base as *mut c_void, handle);
        }
    }

    fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    fn check(&mut self, what: String) -> (usize, *mut Seen) {
        self.checks.push(Check {
            what,
            ..Check::default()
        });
        let at = self.checks.len() - 1;
        (at, &mut *self.checks[at].seen)
    }

    fn wrote(&mut self, buffer: usize, access: Access, value: Option<u64>) {
        if let Some(b) = self.buffers[buffer].as_mut() {
            b.written = Some(access);
            b.read.clear();
            b.value = value;
        }
    }

    // Actions

    fn put(&mut self) {
        let (Some(at), Some(stream)) = (self.some_buffer(|b| !b.lazy), self.some_stream()) else {
            return;
        };
        if !self.wait_for_uses(at, stream, true) {
            return;
        }
        let value = self.value();
        self.tell_torch(at, stream);
        let handle = self.enter(stream);
        let base = self.base(at);
        self.say(|| format!("stream {stream} writes {value:x} to buffer {at}"));
        self.machine.cuda.put(handle, base, LENGTH, value);
        let access = self.order.act(stream);
        self.wrote(at, access, Some(value));
    }

    fn base(&self, buffer: usize) -> u64 {
        self.buffers[buffer].as_ref().map_or(0, |b| b.base)
    }

    fn get(&mut self) {
        let fits = |b: &Buffer| !b.lazy && b.value.is_some();
        if let (Some(at), Some(stream)) = (self.some_buffer(fits), self.some_stream()) {
            self.get_in(at, stream);
        }
    }

    fn get_in(&mut self, at: usize, stream: usize) {
        if !self.wait_for_uses(at, stream, false) {
            return;
        }
        let Some(value) = self.buffers[at].as_ref().and_then(|b| b.value) else {
            return;
        };
        self.tell_torch(at, stream);
        let (check, seen) = self.check(format!("stream {stream} reads buffer {at}"));
        self.checks[check].expected.push(value);
        let handle = self.enter(stream);
        self.say(|| format!("stream {stream} reads buffer {at}, which must be {value:x}"));
        self.machine.cuda.get(handle, self.base(at), LENGTH, seen);
        let access = self.order.act(stream);
        if let Some(b) = self.buffers[at].as_mut() {
            b.read.push(access);
        }
        self.machine.totals.reads += 1;
    }

    fn synchronize(&mut self) {
        if let Some(stream) = self.some_stream() {
            let handle = self.enter(stream);
            self.say(|| format!("the program waits for stream {stream}"));
            self.machine.cuda.synchronize(handle);
            self.order.synchronize(stream);
        }
    }

    // G10's buffers

    fn g10(&mut self) -> Result<(), String> {
        let held = self.some_buffer(|b| b.owner == Owner::G10);
        let Some(at) = held else {
            let mut base = core::ptr::null_mut();
            let device = self.some_gpu();
            self.enter(legacy(device));
            // SAFETY: the output is writable.
            let code = unsafe { g10_alloc(&mut base, LENGTH, core::ptr::null()) };
            if code != 0 {
                return Err(format!("g10_alloc gives {code}"));
            }
            self.say(|| format!("g10_alloc: {base:?}"));
            self.add(Buffer::new(base as u64, Owner::G10));
            return Ok(());
        };
        let Some(stream) = self.some_stream() else {
            return Ok(());
        };
        match self.wait_for_uses(at, stream, true) {
            true => self.free_g10(at, stream),
            false => Ok(()),
        }
    }

    fn free_g10(&mut self, at: usize, stream: usize) -> Result<(), String> {
        let handle = self.enter(stream);
        self.say(|| format!("stream {stream} frees buffer {at} of g10_alloc"));
        // SAFETY: by the model, nobody uses it any more but what comes before.
        let code = unsafe { g10_free(self.base(at) as *mut c_void, handle) };
        self.order.act(stream);
        self.buffers[at] = None;
        match code {
            0 => Ok(()),
            code => Err(format!("g10_free in stream {stream} gives {code}")),
        }
    }

    fn add(&mut self, buffer: Buffer) {
        let base = buffer.base;
        let free = self.buffers.iter().position(Option::is_none);
        self.say(|| {
            let at = free.unwrap_or(self.buffers.len());
            format!("buffer {at} is at {base:#x}")
        });
        match free {
            Some(at) => self.buffers[at] = Some(buffer),
            None => self.buffers.push(Some(buffer)),
        }
    }

    // PyTorch's tensors

    fn torch(&mut self) {
        if self.random.one_in(12) {
            // torch.cuda.empty_cache(), whatever is still under way.
            self.say(|| "PyTorch empties its cache".into());
            let device = self.some_gpu();
            self.enter(legacy(device));
            uvmrust_torch_empty_cache();
        }
        let held = self.some_buffer(|b| matches!(b.owner, Owner::Torch(_)));
        if let Some(at) = held {
            return self.free_torch(at);
        }
        let stream = self.torch_streams[self.random.below(2)];
        if !self.usable(stream) {
            return;
        }
        let handle = self.enter(stream);
        let base = uvmrust_torch_malloc(LENGTH, device_of(stream) as c_int, handle) as u64;
        let mut buffer = Buffer::new(base, Owner::Torch(stream));
        self.say(|| format!("PyTorch allocates in stream {stream}"));
        // Another stream must wait for this one to use it.
        buffer.written = Some(self.order.after_now(stream));
        self.add(buffer);
        self.machine.totals.mallocs += 1;
    }

    /// As PyTorch does it: with whichever device is current.
    fn free_torch(&mut self, at: usize) {
        let Some(Buffer {
            base,
            owner: Owner::Torch(stream),
            ..
        }) = self.buffers[at]
        else {
            return;
        };
        self.say(|| format!("PyTorch frees buffer {at} of stream {stream}"));
        let device = self.some_gpu();
        self.enter(legacy(device));
        let handle = self.machine.streams[stream] as usize;
        let free = move || {
            let (base, handle) = (base as *mut c_void, handle as Handle);
            uvmrust_torch_free(base, LENGTH, device_of(stream) as c_int, handle);
        };
        if self.random.one_in(3) {
            let (cuda, context) = (self.machine.cuda, self.machine.contexts[device] as usize);
            self.machine.other.does(move || {
                cuda.use_context(context as Handle);
                free();
            });
        } else {
            free();
        }
        self.buffers[at] = None;
    }

    /// Reads what is left, frees all, and looks at what was seen.
    fn end(mut self) -> Result<(), String> {
        if let Some(capture) = self.capture.take() {
            self.end_capture(capture);
        }
        for at in 0..self.buffers.len() {
            let stream = self.any_stream();
            let Some(buffer) = &self.buffers[at] else {
                continue;
            };
            let owner = buffer.owner;
            if buffer.value.is_some() && !buffer.lazy {
                self.get_in(at, stream);
            }
            match owner {
                Owner::Torch(_) => self.free_torch(at),
                Owner::G10 if self.wait_for_uses(at, stream, true) => self.free_g10(at, stream)?,
                Owner::G10 | Owner::Raw => {}
            }
        }
        for graph in std::mem::take(&mut self.graphs) {
            self.machine.cuda.destroy_graph(graph.executable as Handle);
        }
        (0..self.machine.gpus).for_each(|gpu| self.wait_for_gpu(gpu));
        self.order.synchronize_all();
        // What was lazily discarded must not stay so for the next program.
        for at in 0..RAW {
            self.call(ranges::Task::Prefetch, &[at], legacy(0), 0)?;
        }
        self.enter(legacy(0));
        self.machine.cuda.synchronize_context();
        let mut stats = Stats::default();
        // SAFETY: the output is writable.
        unsafe { uvmrust_torch_stats(&mut stats) };
        self.machine.totals.reused = stats.reused;
        uvmrust_torch_empty_cache();
        self.look()
    }

    fn look(&self) -> Result<(), String> {
        for check in &self.checks {
            let seen = &check.seen.values[..(check.seen.count as usize).min(16)];
            if seen != check.expected {
                let (what, expected) = (&check.what, &check.expected);
                return Err(format!("{what}: {seen:x?} and not {expected:x?}"));
            }
        }
        // SAFETY: takes nothing.
        match (self.machine.cuda.violations(), unsafe {
            UvmRustStreamError()
        }) {
            (0, 0) => Ok(()),
            (n, error) => Err(format!("{n} violations, stream error {error}")),
        }
    }
}
