// SPDX-License-Identifier: GPL-2.0 OR MIT

//! `uvmrun --selftest`: writes, moves and discards managed memory on the first GPU, and
//! compares what is there with what should be. It is for a real GPU; the tests run it on the
//! stub. What the GPU writes, cuMemsetD32Async writes: no kernel has to be compiled.

use std::ffi::{c_int, c_uint, c_void, CStr};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use uvmrust::cuda::{check, Context, Cuda, Stream, STREAM_PER_THREAD};
use uvmrust::{Backend, Error, Mode, Place, Range, Uvm};

/// Bytes that are discarded, and bytes of each neighbour, which must stay as they are.
const MIDDLE: u64 = 16 << 20;
const SIDE: u64 = 2 << 20;
/// `CU_MEM_ATTACH_GLOBAL`: any stream on any device may use the memory.
const ATTACH_GLOBAL: c_uint = 1;

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type SetCurrent = unsafe extern "C" fn(Context) -> c_int;
type Memset = unsafe extern "C" fn(u64, c_uint, usize, Stream) -> c_int;

/// How a test went.
enum Verdict {
    Right,
    /// There is nothing that could be tested.
    Not(String),
    Wrong(String),
}

type Tested = Result<(), String>;

/// Runs all tests; gives what is to be printed, and the exit status: 0 if all is right, 1 if
/// something is wrong, 2 if there is nothing to test on.
pub(crate) fn run() -> (String, u8) {
    let mut page = String::new();
    let gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(why) => {
            let _ = writeln!(
                page,
                "! {why}\n\nNothing was tested: do what `uvmrun --check` says."
            );
            return (page, 2);
        }
    };
    let _ = writeln!(page, "  backend:      {}", backend_name(gpu.uvm.backend()));
    let mut wrong = 0;
    for (name, test) in TESTS {
        let began = Instant::now();
        let verdict = test(&gpu);
        let took = milliseconds(began.elapsed());
        let topic = format!("{name}:");
        let _ = match verdict {
            Verdict::Right => writeln!(page, "  {topic:<14}right ({took} ms)"),
            Verdict::Not(why) => writeln!(page, "  {topic:<14}not tested: {why}"),
            Verdict::Wrong(why) => {
                wrong += 1;
                writeln!(page, "! {topic:<14}WRONG: {why}")
            }
        };
    }
    page.push_str(match wrong {
        0 => "\nAll that was tested is right.\n",
        _ => {
            "\nDo not use discard on this machine. Please report this page, with what \
             `uvmrun --check` prints.\n"
        }
    });
    (page, u8::from(wrong > 0))
}

fn milliseconds(time: Duration) -> u128 {
    time.as_millis()
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::None => "none: nobody discards here",
        Backend::UvmRust => "uvm-rust's driver",
        Backend::Native => "NVIDIA's driver",
        Backend::Cuda => "CUDA 13",
    }
}

/// A test by its name.
type Test = (&'static str, fn(&Gpu) -> Verdict);

const TESTS: [Test; 5] = [
    ("write", |gpu| verdict(gpu.write())),
    ("prefetch", |gpu| verdict(gpu.prefetch())),
    ("discard", |gpu| gpu.discards(Mode::Eager)),
    ("lazy discard", |gpu| gpu.discards(Mode::Lazy)),
    ("again", |gpu| verdict(gpu.again())),
];

fn verdict(tested: Tested) -> Verdict {
    match tested {
        Ok(()) => Verdict::Right,
        Err(why) => Verdict::Wrong(why),
    }
}

/// The first GPU, with memory on it: a neighbour, what is discarded, and another neighbour.
struct Gpu {
    uvm: &'static Uvm,
    cuda: Cuda,
    memset: Memset,
    uuid: [u8; 16],
    base: u64,
}

/// Does something of CUDA's, or says what failed.
fn cuda_did(what: &str, code: c_int) -> Tested {
    check(code).map_err(|why| format!("{what}: {why} (CUDA's error {code})"))
}

impl Gpu {
    fn open() -> Result<Self, String> {
        // SAFETY: the name is a C string; the library's initialisers are made to run in any
        // program.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
        if handle.is_null() {
            return Err("libcuda.so.1 is not found".into());
        }
        let symbol = |name: &CStr| {
            // SAFETY: the name is a C string; the handle is open.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            let missing = || format!("libcuda.so.1 has no {}", name.to_string_lossy());
            (!found.is_null()).then_some(found).ok_or_else(missing)
        };
        // SAFETY: CUDA's functions of these names have these types, and are not null.
        let (init, set_current, memset) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(symbol(c"cuInit")?),
                std::mem::transmute::<*mut c_void, SetCurrent>(symbol(c"cuCtxSetCurrent")?),
                std::mem::transmute::<*mut c_void, Memset>(symbol(c"cuMemsetD32Async")?),
            )
        };
        let cuda = Cuda::loaded().ok_or("libcuda.so.1 is not found")?;
        let missing = "libcuda.so.1 is too old";
        let retain = cuda.primary_retain.ok_or(missing)?;
        let allocate = cuda.mem_alloc_managed.ok_or(missing)?;
        let mut context = std::ptr::null_mut();
        let mut base = 0;
        // SAFETY: outputs are writable, and the context is the one that is retained.
        unsafe {
            cuda_did("cuInit", init(0))?;
            cuda_did("the first GPU's context", retain(&mut context, 0))?;
            cuda_did("the first GPU's context", set_current(context))?;
            let length = (SIDE + MIDDLE + SIDE) as usize;
            cuda_did("managed memory", allocate(&mut base, length, ATTACH_GLOBAL))?;
        }
        let uuid = cuda
            .uuid(0)
            .map_err(|why| format!("the first GPU's UUID: {why}"))?;
        let uvm = Uvm::process();
        Ok(Self {
            uvm,
            cuda,
            memset,
            uuid,
            base,
        })
    }

    fn middle(&self) -> Range {
        Range {
            base: self.base + SIDE,
            length: MIDDLE,
        }
    }

    fn all(&self) -> Range {
        Range {
            base: self.base,
            length: SIDE + MIDDLE + SIDE,
        }
    }

    /// Writes a word all over a range, by the GPU, and waits.
    fn fill(&self, range: Range, word: u32) -> Tested {
        let stream = STREAM_PER_THREAD;
        // SAFETY: the range is of our memory, which nobody else uses.
        let code = unsafe { (self.memset)(range.base, word, range.length as usize / 4, stream) };
        cuda_did("cuMemsetD32Async", code)?;
        // SAFETY: a special stream.
        let waited = unsafe { self.cuda.synchronize(stream) };
        waited.map_err(|why| format!("cuStreamSynchronize: {why}"))
    }

    /// Whether a range has this word all over, as the CPU reads it.
    fn has(&self, range: Range, word: u32, what: &str) -> Tested {
        let words = range.length / 4;
        let first = range.base as *const u32;
        let wrong = (0..words).find_map(|at| {
            // SAFETY: the range is of our memory, and nothing of the GPU's is under way.
            let found = unsafe { first.add(at as usize).read_volatile() };
            (found != word).then_some((at * 4, found))
        });
        match wrong {
            None => Ok(()),
            Some((at, found)) => Err(format!(
                "{what}: {found:#010x} instead of {word:#010x} at byte {at} of {}",
                range.length
            )),
        }
    }

    fn sides(&self, word: u32) -> Tested {
        let ends = [self.base, self.base + SIDE + MIDDLE];
        ends.into_iter().try_for_each(|base| {
            let range = Range { base, length: SIDE };
            self.has(range, word, "memory beside what was discarded")
        })
    }

    fn write(&self) -> Tested {
        self.fill(self.all(), 0x1111_1111)?;
        self.has(self.all(), 0x1111_1111, "what the GPU wrote")
    }

    fn prefetch(&self) -> Tested {
        for (to, place) in [
            ("the GPU", Place::Gpu(self.uuid)),
            ("the host", Place::Host),
        ] {
            let moved = self.uvm.prefetch(self.all(), place);
            moved.map_err(|why| format!("to {to}: {why}"))?;
            self.has(self.all(), 0x1111_1111, "what was moved")?;
        }
        Ok(())
    }

    fn discards(&self, mode: Mode) -> Verdict {
        // SAFETY: nothing is read of it before it is written again, after a prefetch.
        let done = unsafe { self.uvm.discard(self.middle(), mode) };
        match done {
            Ok(()) => verdict(self.discarded(mode)),
            Err(Error::NotSupported) => Verdict::Not(match mode {
                Mode::Eager => "nobody discards here (`uvmrun --check` says why)".into(),
                Mode::Lazy => "nobody discards lazily here".into(),
            }),
            Err(why) => Verdict::Wrong(why.to_string()),
        }
    }

    /// What was discarded takes what is written, and nothing beside it has changed.
    fn discarded(&self, mode: Mode) -> Tested {
        let word = match mode {
            Mode::Eager => 0x2222_2222,
            Mode::Lazy => 0x3333_3333,
        };
        if mode == Mode::Lazy {
            let moved = self.uvm.prefetch(self.middle(), Place::Gpu(self.uuid));
            moved.map_err(|why| format!("prefetch of what was discarded: {why}"))?;
        }
        self.fill(self.middle(), word)?;
        self.sides(0x1111_1111)?;
        let moved = self.uvm.prefetch(self.all(), Place::Host);
        moved.map_err(|why| format!("to the host: {why}"))?;
        self.has(self.middle(), word, "what was written after the discard")?;
        self.sides(0x1111_1111)
    }

    /// What was written last is still there on the GPU's side.
    fn again(&self) -> Tested {
        self.fill(self.all(), 0x4444_4444)?;
        let moved = self.uvm.prefetch(self.all(), Place::Gpu(self.uuid));
        moved.map_err(|why| format!("to the GPU: {why}"))?;
        self.has(self.all(), 0x4444_4444, "what was written last")
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Some(free) = self.cuda.mem_free {
            // SAFETY: allocated in `open`, and not used any more.
            let _ = unsafe { free(self.base) };
        }
    }
}
