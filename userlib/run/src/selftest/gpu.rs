// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The GPU of the tests, and the memory that they write. What the GPU writes, cuMemsetD32Async
//! writes: no kernel has to be compiled.

use std::ffi::{c_int, c_uint, c_void, CStr};

use uvmrust::cuda::{check, Context, Cuda, Stream};
use uvmrust::{Place, Range, Uvm};

use super::graphs::Graphs;

/// Bytes that are discarded, and bytes of each neighbour, which must stay as they are.
const MIDDLE: u64 = 16 << 20;
const SIDE: u64 = 2 << 20;
/// Bytes of what a discard drops at the least.
const PAGE: u64 = 4096;
/// `CU_MEM_ATTACH_GLOBAL`: any stream on any device may use the memory.
const ATTACH_GLOBAL: c_uint = 1;
/// `CU_STREAM_NON_BLOCKING`: the stream does not wait for the legacy default stream.
const NON_BLOCKING: c_uint = 1;

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type SetCurrent = unsafe extern "C" fn(Context) -> c_int;
type Create = unsafe extern "C" fn(*mut Stream, c_uint) -> c_int;
type Memset = unsafe extern "C" fn(u64, c_uint, usize, Stream) -> c_int;

/// What is wrong, in words.
pub(super) type Tested = Result<(), String>;

/// The first GPU, with memory on it: a neighbour, what is discarded, and another neighbour.
pub(super) struct Gpu {
    pub(super) uvm: &'static Uvm,
    cuda: Cuda,
    memset: Memset,
    /// A stream of the tests' own, which may be captured.
    pub(super) stream: Stream,
    /// CUDA's calls for graphs, or which one is missing.
    pub(super) graphs: Result<Graphs, String>,
    uuid: [u8; 16],
    base: u64,
}

/// Does something of CUDA's, or says what failed.
pub(super) fn cuda_did(what: &str, code: c_int) -> Tested {
    check(code).map_err(|why| format!("{what}: {why} (CUDA's error {code})"))
}

impl Gpu {
    pub(super) fn open() -> Result<Self, String> {
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
        let (init, set_current, create, memset) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(symbol(c"cuInit")?),
                std::mem::transmute::<*mut c_void, SetCurrent>(symbol(c"cuCtxSetCurrent")?),
                std::mem::transmute::<*mut c_void, Create>(symbol(c"cuStreamCreate")?),
                std::mem::transmute::<*mut c_void, Memset>(symbol(c"cuMemsetD32Async")?),
            )
        };
        let graphs = Graphs::of(symbol);
        let cuda = Cuda::loaded().ok_or("libcuda.so.1 is not found")?;
        let missing = "libcuda.so.1 is too old";
        let retain = cuda.primary_retain().ok_or(missing)?;
        let allocate = cuda.mem_alloc_managed().ok_or(missing)?;
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut base = 0;
        // SAFETY: outputs are writable, and the context is the one that is retained.
        unsafe {
            cuda_did("cuInit", init(0))?;
            cuda_did("the first GPU's context", retain(&mut context, 0))?;
            cuda_did("the first GPU's context", set_current(context))?;
            cuda_did("a stream", create(&mut stream, NON_BLOCKING))?;
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
            stream,
            graphs,
            uuid,
            base,
        })
    }

    pub(super) fn place(&self) -> Place {
        Place::Gpu(self.uuid)
    }

    /// The memory that is discarded, between two neighbours that are not.
    pub(super) fn middle(&self) -> Range {
        Range {
            base: self.base + SIDE,
            length: MIDDLE,
        }
    }

    /// The same, in parts.
    pub(super) fn parts(&self) -> [Range; 4] {
        std::array::from_fn(|part| Range {
            base: self.middle().base + part as u64 * (MIDDLE / 4),
            length: MIDDLE / 4,
        })
    }

    pub(super) fn all(&self) -> Range {
        Range {
            base: self.base,
            length: SIDE + MIDDLE + SIDE,
        }
    }

    /// Writes a word all over a range, by the GPU, behind what is in the stream.
    pub(super) fn put(&self, range: Range, word: u32) -> Tested {
        let words = range.length as usize / 4;
        // SAFETY: the range is of our memory, which nobody else uses.
        let code = unsafe { (self.memset)(range.base, word, words, self.stream) };
        cuda_did("cuMemsetD32Async", code)
    }

    /// Waits for the stream.
    pub(super) fn wait(&self) -> Tested {
        // SAFETY: a stream of our own.
        let waited = unsafe { self.cuda.synchronize(self.stream) };
        waited.map_err(|why| format!("cuStreamSynchronize: {why}"))
    }

    /// Writes a word all over a range, by the GPU, and waits.
    pub(super) fn fill(&self, range: Range, word: u32) -> Tested {
        self.put(range, word)?;
        self.wait()
    }

    /// Writes a word all over a range, by the CPU.
    pub(super) fn host_fills(&self, range: Range, word: u32) {
        let first = range.base as *mut u32;
        for at in 0..range.length as usize / 4 {
            // SAFETY: the range is of our memory, and nothing of the GPU's is under way.
            unsafe { first.add(at).write_volatile(word) };
        }
    }

    /// How many bytes of a range are in pages that begin with another word than this one, as the CPU reads
    /// them.
    pub(super) fn without(&self, range: Range, word: u32) -> u64 {
        let changed = (0..range.length / PAGE).filter(|page| {
            // SAFETY: the range is of our memory, and nothing of the GPU's is under way. What was discarded
            // may have any value, and a volatile read takes what is there.
            let found = unsafe { ((range.base + page * PAGE) as *const u32).read_volatile() };
            found != word
        });
        changed.count() as u64 * PAGE
    }

    /// Whether a range has this word all over, as the CPU reads it.
    pub(super) fn has(&self, range: Range, word: u32, what: &str) -> Tested {
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

    pub(super) fn sides(&self, word: u32) -> Tested {
        let ends = [self.base, self.base + SIDE + MIDDLE];
        ends.into_iter().try_for_each(|base| {
            let range = Range { base, length: SIDE };
            self.has(range, word, "memory beside what was discarded")
        })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Some(free) = self.cuda.mem_free() {
            // SAFETY: allocated in `open`, and not used any more.
            let _ = unsafe { free(self.base) };
        }
    }
}
