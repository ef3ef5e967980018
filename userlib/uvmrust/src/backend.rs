// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Which driver discards for this process, and the calls that it does at once.
//!
//! The choice is made at the first call and kept. It is one atomic word, so the hot
//! path takes no lock and allocates nothing; [`Uvm::probing`] only keeps two
//! threads from looking at the same time. Only an initialised descriptor gives an answer
//! that is kept: before CUDA has one, there is no UVM *yet*.
//!
//! A child of `fork` inherits its parent's descriptor, and a discard through it would be
//! one of the parent's memory. So each answer carries how many forks lie behind the
//! process that got it, and holds in no other ([`Uvm::not_forked`]). A library that was
//! loaded after the fork knows of none: it asks UVM whose a descriptor is
//! ([`Sys::foreign`]), and takes none that is not from the program itself before CUDA is
//! initialised here, which in such a child it never is.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::{self, Cuda};
use crate::fd;
use crate::sys::{Linux, Sys};
use crate::uapi::{self, Announce};
use crate::{Error, Place, Range, Result};

/// What carries out discards in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Backend {
    /// Nobody: no UVM in this process (yet), or a driver without discard.
    None = 0,
    /// uvm-rust's driver, by its ioctl `UVM_RUST_DISCARD_BATCH`.
    UvmRust = 1,
    /// NVIDIA's driver from 580 on, `UVM_DISCARD`.
    Native = 2,
    /// CUDA 13, by its function `cuMemDiscardAndPrefetchBatchAsync`.
    Cuda = 3,
}

/// The two kinds of discard (`uvm-discard` paper, §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// UvmDiscard: unmapped at once; the next write is kept, without more ado.
    Eager,
    /// UvmDiscardLazy: cheaper; must be prefetched before it is used again.
    /// CUDA alone takes it for eager, which gives more.
    ///
    /// Only whole blocks of 2 MiB are discarded so, unless a prefetch comes in the same call. CUDA may
    /// have memory of several owners in one block, and gives a part to the next owner without a word
    /// to UVM. What that one wrote would be lost.
    Lazy,
}

impl Mode {
    /// How the ranges of a discard by itself are made to fit.
    pub(crate) fn fit(self) -> Fit {
        match self {
            Self::Eager => Range::shrunk,
            Self::Lazy => Range::blocks,
        }
    }
}

/// How a range is made to fit what can be done.
pub(crate) type Fit = fn(Range) -> Result<Range>;

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Ranges done. Where this is less than all, it is the index of the one that
    /// failed; CUDA fails or does up to 64 as a whole, where they are ascending and apart. Of the
    /// call that [`Error::Busy`] ended uvm-rust's driver says none, and ranges behind this one may be
    /// discarded.
    pub done: usize,
    /// Whether the driver counted ([`Backend::UvmRust`] does, unless it leaves the discard to NVIDIA's);
    /// else the next three are 0.
    pub counted: bool,
    /// 2 MiB blocks of which all that was asked for is discarded.
    pub blocks_discarded: u64,
    /// Blocks left as they were.
    pub blocks_skipped: u64,
    /// Blocks discarded in part.
    pub blocks_partial: u64,
}

/// Backend and descriptor in one word: see [`Choice::pack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    backend: Backend,
    fd: i32,
    /// What discards is NVIDIA's own: always with [`Backend::Native`], and with [`Backend::UvmRust`] where that
    /// driver is built or loaded so. It takes an eager discard as two calls.
    native: bool,
}

impl Choice {
    const UNKNOWN: u64 = 0;

    /// With how many forks lie behind the process.
    fn pack(self, forks: u32) -> u64 {
        let backend = (self.backend as u64 + 1) | (u64::from(self.native) << 7);
        ((self.fd as u32 as u64) << 32) | (u64::from(forks) << 8 & 0xffff_ff00) | backend
    }

    fn unpack(word: u64, forks: u32) -> Option<Self> {
        if (word as u32) >> 8 != forks & 0x00ff_ffff {
            return None;
        }
        let backend = match word as u8 & 0x7f {
            1 => Backend::None,
            2 => Backend::UvmRust,
            3 => Backend::Native,
            4 => Backend::Cuda,
            _ => return None,
        };
        Some(Self {
            backend,
            fd: (word >> 32) as u32 as i32,
            native: word & 0x80 != 0,
        })
    }
}

/// Discards, prefetches and announces for one process. All calls may be made by any
/// threads at the same time.
#[derive(Debug)]
pub struct Uvm<S = Linux> {
    pub(crate) sys: S,
    /// A descriptor given by the program, or -1.
    given: AtomicI32,
    /// The forks that lay behind the process that gave it. Written before `given`.
    given_forks: AtomicU32,
    /// The program gave it; else it is the environment's.
    given_here: AtomicBool,
    /// The forks, plus one, that lay behind the process whose CUDA was initialised, or 0.
    cuda_ready: AtomicU32,
    /// UVM's major number as found last, or 0. Written before `choice`.
    major: AtomicU64,
    /// What [`Choice::pack`] made of the backend that was found, or [`Choice::UNKNOWN`].
    choice: AtomicU64,
    /// Descriptor for announcements: 0 unknown, 1 none, else it + 2. The upper half: forks.
    announcer: AtomicU64,
    /// First error of a discard that ran in a stream, or 0.
    pub(crate) stream_error: AtomicI32,
    /// Discards that ran in a stream and failed.
    pub(crate) failed_discards: AtomicU64,
    /// Ranges of prefetches that ran in a stream and failed.
    pub(crate) failed_prefetches: AtomicU64,
    /// Whether some memory may be lazily discarded, or may come to be so ([`Uvm::may_be_lazy`]).
    lazy: AtomicBool,
    /// Held while looking for a backend.
    probing: Mutex<()>,
}

/// The one of this process, as C uses it.
static PROCESS: Uvm = Uvm::new(Linux::new());

impl Uvm {
    /// The one of this process. It finds UVM's file descriptor itself: the one that
    /// CUDA has opened, or, if set, that of the environment variable `UVMRUST_FD`, which is
    /// read when the library is loaded.
    pub fn process() -> &'static Self {
        static ENVIRONMENT: std::sync::Once = std::sync::Once::new();
        ENVIRONMENT.call_once(|| {
            let fd = std::env::var("UVMRUST_FD")
                .ok()
                .and_then(|fd| fd.parse().ok());
            PROCESS.use_fd(fd);
            // Opened before this process began, also where a child is the first to ask.
            PROCESS.given_forks.store(0, Relaxed);
            PROCESS.given_here.store(false, Relaxed);
        });
        &PROCESS
    }
}

impl<S: Sys> Uvm<S> {
    /// On another system than this process's own.
    pub const fn new(sys: S) -> Self {
        Self {
            sys,
            given: AtomicI32::new(-1),
            given_forks: AtomicU32::new(0),
            given_here: AtomicBool::new(false),
            cuda_ready: AtomicU32::new(0),
            major: AtomicU64::new(0),
            choice: AtomicU64::new(Choice::UNKNOWN),
            announcer: AtomicU64::new(0),
            stream_error: AtomicI32::new(0),
            failed_discards: AtomicU64::new(0),
            failed_prefetches: AtomicU64::new(0),
            lazy: AtomicBool::new(false),
            probing: Mutex::new(()),
        }
    }

    /// Uses this descriptor of /dev/nvidia-uvm from now on, `None`: finds one. It
    /// must stay open.
    pub fn use_fd(&self, fd: Option<i32>) {
        let _guard = self.probing();
        self.given_forks.store(self.sys.forks(), Relaxed);
        self.given_here.store(fd.is_some(), Relaxed);
        self.given.store(fd.unwrap_or(-1), Relaxed);
        self.choice.store(Choice::UNKNOWN, Relaxed);
        self.announcer.store(0, Relaxed);
    }

    /// CUDA's driver library, if this process has loaded it.
    pub fn cuda(&self) -> Option<&Cuda> {
        self.sys.cuda()
    }

    /// Whether this process may use what the library knows: not if it is the child of a
    /// `fork` and has its parent's descriptor of UVM. CUDA cannot be used there either.
    /// A descriptor that the child gives to [`Uvm::use_fd`] is its own.
    ///
    /// # Errors
    /// [`Error::NotSupported`]: it may not.
    pub fn not_forked(&self) -> Result<()> {
        let given = self.given.load(Relaxed) >= 0;
        let inherited = match given {
            true => self.given_forks.load(Relaxed) != self.sys.forks(),
            false => self.sys.inherited(),
        };
        match inherited {
            true => Err(Error::NotSupported),
            false => Ok(()),
        }
    }

    /// Whether a descriptor that is there may be this process's: one that the program gave,
    /// or any once CUDA, if it is loaded, is initialised. As [`Uvm::cuda_is_ready`].
    pub(crate) fn may_be_ours(&self) -> bool {
        self.is_given() || self.cuda_is_ready()
    }

    /// Whether the program itself gave the descriptor.
    pub(crate) fn is_given(&self) -> bool {
        self.given_here.load(Relaxed)
    }

    /// Whether CUDA, if it is loaded, is initialised in this process. Not to be called with
    /// the lock held. A host function may call it where it was true before in the same
    /// process: then it does not ask CUDA again ([`Uvm::discard_async`]).
    pub(crate) fn cuda_is_ready(&self) -> bool {
        let this = self.sys.forks().wrapping_add(1);
        if self.cuda_ready.load(Relaxed) == this {
            return true;
        }
        let Some(call) = self.sys.cuda().and_then(|cuda| cuda.device_count) else {
            return true;
        };
        // SAFETY: the output is writable and of the right type.
        let ready = cuda::check(unsafe { call(&mut 0) }) != Err(Error::NoContext);
        if ready {
            self.cuda_ready.store(this, Relaxed);
        }
        ready
    }

    /// In a child of `fork`, another thread of the parent may hold the lock for ever.
    fn probing(&self) -> Option<MutexGuard<'_, ()>> {
        match self.sys.forks() {
            0 => Some(self.probing.lock().unwrap_or_else(PoisonError::into_inner)),
            _ => self.probing.try_lock().ok(),
        }
    }

    /// Who would discard if a discard were called now.
    pub fn backend(&self) -> Backend {
        self.choice().map_or(Backend::None, |choice| choice.backend)
    }

    /// Discards the whole pages of one range, or, with [`Mode::Lazy`], its whole blocks of 2 MiB.
    ///
    /// # Errors
    /// As [`Uvm::discard_batch`].
    ///
    /// # Safety
    /// Nothing reads the range before it is written again: what it would read is
    /// indeterminate, as uninitialised memory is (zeros or older values with
    /// [`Backend::UvmRust`]). No reference to it is live; and after [`Mode::Lazy`], it is
    /// prefetched before it is next read or written. So it is after an error, in either mode.
    pub unsafe fn discard(&self, range: Range, mode: Mode) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.discard_batch(&[range], mode, &mut Outcome::default()) }
    }

    /// Discards several ranges as [`Uvm::discard`] does one. Stops at the first that fails;
    /// `outcome` tells how far it came, and is filled in either way.
    ///
    /// # Errors
    /// [`Error::NotSupported`]: nothing has changed, in any of the ranges; where some are
    /// discarded before a driver says that, it is [`Error::Driver`].
    ///
    /// Any other error may leave ranges lazily discarded: prefetch all of them before they are used. Of
    /// NVIDIA's driver, which does that where it cannot unmap, such a range is brought to the host
    /// here, so that this matters after an eager discard only where memory is short for both.
    /// After a success of [`Mode::Eager`] nothing of the ranges stays lazily discarded: that driver's
    /// call is made twice, since the first does not unmap all where a page is read-duplicated. It may
    /// then map other pages of the same 2 MiB block that were discarded before, and a write to these
    /// would be lost. So, with that driver, discard no part of a block that may be read-duplicated.
    ///
    /// # Safety
    /// As for [`Uvm::discard`], for each range.
    pub unsafe fn discard_batch(
        &self,
        ranges: &[Range],
        mode: Mode,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let lazily = || {
            mode == Mode::Lazy
                && matches!(self.backend(), Backend::UvmRust | Backend::Native)
                && all_fit(ranges, mode.fit()) != Ok(0)
        };
        if lazily() {
            self.is_lazy();
        }
        // SAFETY: the same contract.
        unsafe { self.discard_fit(ranges, mode, mode.fit(), outcome) }
    }

    /// [`Uvm::discard_batch`] of whole pages, for who prefetches what it discards lazily in the same call.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn discard_for_now(
        &self,
        ranges: &[Range],
        mode: Mode,
        outcome: &mut Outcome,
    ) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.discard_fit(ranges, mode, Range::shrunk, outcome) }
    }

    /// # Safety
    /// As for [`Uvm::discard_batch`], of what `fit` makes of the ranges.
    unsafe fn discard_fit(
        &self,
        ranges: &[Range],
        mode: Mode,
        fit: Fit,
        outcome: &mut Outcome,
    ) -> Result<()> {
        *outcome = Outcome::default();
        let choice = match self.choice() {
            Ok(choice) if choice.backend != Backend::None => choice,
            // Nothing is needed for nothing.
            _ if all_fit(ranges, Range::shrunk) == Ok(0) => {
                outcome.done = ranges.len();
                return Ok(());
            }
            other => other?,
        };
        let flags = match mode {
            Mode::Eager => uapi::DISCARD_EAGER,
            Mode::Lazy => 0,
        };
        match choice.backend {
            Backend::None => Err(Error::NotSupported),
            Backend::UvmRust | Backend::Native if choice.native => {
                self.batch_native(choice.fd, ranges, fit, flags, outcome)
            }
            Backend::UvmRust | Backend::Native => {
                self.batch_uvm_rust(choice.fd, ranges, fit, flags, outcome)
            }
            Backend::Cuda => self.batch_cuda(ranges, outcome),
        }
        .inspect_err(|error| self.doubt(*error))
        .map_err(|error| half_way(&ranges[..outcome.done.min(ranges.len())], error))
        .inspect_err(|error| {
            if *error != Error::NotSupported {
                self.is_lazy();
            }
        })
    }

    /// Some memory is lazily discarded from now on, or at some time later, until it is prefetched.
    pub(crate) fn is_lazy(&self) {
        self.lazy.store(true, Relaxed);
    }

    /// Whether some memory may be lazily discarded. Then a write behind a prefetch that fails is lost, so that
    /// CUDA's own is not enough: "a memory region [...] may be migrated" by it (CUDA Programming Guide, Data
    /// Prefetching), and nobody is told where it was not. Only of its own discard does CUDA say that a prefetch ends
    /// it, and that a write does (CUDA Driver API, cuMemDiscardBatchAsync).
    ///
    /// Once it is so it stays so: a graph discards at each launch.
    pub(crate) fn may_be_lazy(&self) -> bool {
        self.lazy.load(Relaxed)
    }

    /// Moves what a range has in host memory to the SSD, as far as there is room.
    /// Returns when it is done.
    ///
    /// # Errors
    /// [`Error::NotSupported`]: not uvm-rust's driver, or its SSD tier is off;
    /// [`Error::NoDevice`]: it is on, but no SSD is attached.
    pub fn spill(&self, range: Range) -> Result<()> {
        let range = range.grown()?;
        if range.length == 0 {
            return Ok(());
        }
        // Another driver says nothing of its own of an unknown number: only ours is asked.
        if self.backend() != Backend::UvmRust {
            return Err(Error::NotSupported);
        }
        let fd = self.uvm_fd().ok_or(Error::NotSupported)?;
        let mut params = uapi::FlashMove {
            size: size_of::<uapi::FlashMove>() as u32,
            flags: 0,
            base: range.base,
            length: range.length,
            gpu_uuid: [0; 16],
        };
        // SAFETY: the structure of this number, which points to nothing.
        let done = unsafe {
            let arg = (&mut params as *mut uapi::FlashMove).cast::<c_void>();
            self.sys.ioctl(fd, uapi::FLASH_MOVE, arg)
        };
        done.map_err(Error::from_errno)
    }

    /// Whether the driver takes execution IDs. `None`: no UVM in this process yet.
    pub fn can_announce(&self) -> Option<bool> {
        if self.announcer() == 0 {
            self.probe_announcer();
        }
        match self.announcer() {
            0 => None,
            1 => Some(false),
            _ => Some(true),
        }
    }

    /// The lower half of the word, as far as it is for this process.
    fn announcer(&self) -> u32 {
        let word = self.announcer.load(Relaxed);
        match (word >> 32) as u32 == self.sys.forks() {
            true => word as u32,
            false => 0,
        }
    }

    /// Says that the kernel of this execution ID (not 0) runs next on a GPU.
    pub fn announce(&self, gpu_uuid: [u8; 16], exec_id: u64) -> Result<()> {
        if self.can_announce() != Some(true) {
            return Err(Error::NotSupported);
        }
        let fd = (i64::from(self.announcer()) - 2) as i32;
        if fd < 0 || !self.usable(fd) {
            self.announcer.store(0, Relaxed);
            return Err(Error::NotSupported);
        }
        let mut params = Announce {
            size: size_of::<Announce>() as u32,
            flags: 0,
            gpu_uuid,
            exec_id,
        };
        self.call(fd, uapi::ANNOUNCE, &mut params)
            .map_err(Error::from_errno)
    }

    /// The choice, made now if it was not or no longer holds.
    fn choice(&self) -> Result<Choice> {
        let known = Choice::unpack(self.choice.load(Relaxed), self.sys.forks());
        match known {
            Some(choice) if choice.fd < 0 || self.usable(choice.fd) => Ok(choice),
            _ => self.probe(),
        }
    }

    /// Whether the number still names UVM. One that the program gave is trusted.
    fn usable(&self, fd: i32) -> bool {
        fd == self.given.load(Relaxed) || fd::is_uvm(&self.sys, fd, self.major.load(Relaxed) as u32)
    }

    /// After an error that another descriptor might not give: looks again next time.
    fn doubt(&self, error: Error) {
        if error == Error::NotSupported {
            let known = Choice::unpack(self.choice.load(Relaxed), self.sys.forks());
            if known.is_some_and(|choice| choice.backend != Backend::None) {
                self.choice.store(Choice::UNKNOWN, Relaxed);
            }
        }
    }

    /// A descriptor for NVIDIA's own calls.
    pub(crate) fn uvm_fd(&self) -> Option<i32> {
        let choice = self.choice().ok()?;
        (choice.fd >= 0).then_some(choice.fd)
    }

    fn batch_cuda(&self, ranges: &[Range], outcome: &mut Outcome) -> Result<()> {
        if all_fit(ranges, Range::shrunk) == Ok(0) {
            // The stream may be captured.
            outcome.done = ranges.len();
            return Ok(());
        }
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        // SAFETY: the per-thread stream is always there.
        unsafe {
            cuda.not_captured(cuda::STREAM_PER_THREAD)?;
            let done = cuda.discard_all(ranges, None, cuda::STREAM_PER_THREAD, outcome);
            // Also after an error: the groups before it are on their way.
            cuda.synchronize(cuda::STREAM_PER_THREAD).and(done)
        }
    }
}

/// An error of a batch whose first ranges, `done`, are discarded or on their way:
/// [`Error::NotSupported`] would say that nothing has changed.
pub(crate) fn half_way(done: &[Range], error: Error) -> Error {
    let any = || {
        done.iter()
            .any(|range| range.shrunk().is_ok_and(|range| range.length != 0))
    };
    match error {
        Error::NotSupported if any() => Error::Driver,
        other => other,
    }
}

/// An error of a prefetch that was to follow a discard: none of those that say that nothing has
/// changed. A capture that forbids the prefetch was begun behind the discard, and ends.
pub(crate) fn behind_a_discard(error: Error) -> Error {
    match error {
        Error::NotSupported | Error::Invalid | Error::NoDevice => Error::Driver,
        Error::Capture => Error::Busy,
        other => other,
    }
}

/// How many of these ranges have something to be done once they are made to fit pages.
///
/// # Errors
/// [`Error::Invalid`]: one goes over the end of the address space.
pub(crate) fn all_fit(ranges: &[Range], fit: Fit) -> Result<usize> {
    ranges
        .iter()
        .try_fold(0, |n, range| Ok(n + usize::from(fit(*range)?.length != 0)))
}

/// CUDA's number of a place.
pub(crate) fn ordinal(cuda: &Cuda, place: Place) -> Result<i32> {
    match place {
        Place::Host => Ok(cuda::DEVICE_CPU),
        Place::Gpu(uuid) => cuda.ordinal(&uuid),
    }
}

mod calls;
mod prefetch;
mod probe;
mod queue;

pub(crate) use prefetch::is_part;
#[cfg(test)]
mod tests;
