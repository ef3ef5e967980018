// SPDX-License-Identifier: GPL-2.0 OR MIT

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
use std::time::Instant;

use crate::cuda::{self, check_range, Cuda};
use crate::fd;
use crate::sys::{Linux, Sys};
use crate::uapi::{self, Announce, DiscardBatch, Migrate, NativeDiscard};
use crate::{broken, Error, Place, Range, Result};

/// Who discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Backend {
    /// Nobody: no UVM in this process (yet), or a driver without discard.
    None = 0,
    /// uvm-rust's driver, `UVM_RUST_DISCARD_BATCH`.
    UvmRust = 1,
    /// NVIDIA's driver from 580 on, `UVM_DISCARD`.
    Native = 2,
    /// CUDA 13, `cuMemDiscardBatchAsync`.
    Cuda = 3,
}

/// The two kinds of discard (`uvm-discard` paper, §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// UvmDiscard: unmapped at once; the next write is kept, without more ado.
    Eager,
    /// UvmDiscardLazy: cheaper; must be prefetched before it is used again.
    /// CUDA has no such discard and takes it for eager, which gives more.
    Lazy,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Ranges done. Where this is less than all, it is the index of the one that
    /// failed; CUDA fails or does a group of up to 64 as a whole.
    pub done: usize,
    /// Whether the driver counted ([`Backend::UvmRust`] does); else the next three
    /// are 0.
    pub counted: bool,
    /// 2 MiB blocks of which all that was asked for is discarded.
    pub blocks_discarded: u64,
    /// Blocks left as they were.
    pub blocks_skipped: u64,
    /// Blocks discarded in part.
    pub blocks_partial: u64,
}

/// Ranges that do not fit pages, and those for CUDA, are worked on in groups of so
/// many, on the stack.
const GROUP: usize = 64;

/// Room behind each structure of NVIDIA's, in words. Their numbers say nothing of the
/// size, so a driver whose structure has grown writes as much as it likes.
const ROOM: usize = 64;

#[repr(C)]
struct Roomy<T> {
    params: T,
    room: [u64; ROOM],
}

/// Backend and descriptor in one word: see [`Choice::pack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    backend: Backend,
    fd: i32,
}

impl Choice {
    const UNKNOWN: u64 = 0;

    /// With how many forks lie behind the process.
    fn pack(self, forks: u32) -> u64 {
        let backend = self.backend as u64 + 1;
        ((self.fd as u32 as u64) << 32) | (u64::from(forks) << 8 & 0xffff_ff00) | backend
    }

    fn unpack(word: u64, forks: u32) -> Option<Self> {
        if (word as u32) >> 8 != forks & 0x00ff_ffff {
            return None;
        }
        let backend = match word as u8 {
            1 => Backend::None,
            2 => Backend::UvmRust,
            3 => Backend::Native,
            4 => Backend::Cuda,
            _ => return None,
        };
        Some(Self {
            backend,
            fd: (word >> 32) as u32 as i32,
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
    /// [`Choice::pack`], or [`Choice::UNKNOWN`].
    choice: AtomicU64,
    /// Descriptor for announcements: 0 unknown, 1 none, else it + 2. The upper half: forks.
    announcer: AtomicU64,
    /// First error of a discard that ran in a stream, or 0.
    pub(crate) stream_error: AtomicI32,
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
    /// `fork` and has its parent's descriptor of UVM. CUDA can not be used there either.
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
        self.given_here.load(Relaxed) || self.cuda_is_ready()
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

    /// Who would discard now.
    pub fn backend(&self) -> Backend {
        self.choice().map_or(Backend::None, |choice| choice.backend)
    }

    /// Discards the whole pages of one range.
    ///
    /// # Safety
    /// Nothing reads the range before it is written again: what it would read is
    /// indeterminate, as uninitialised memory is (zeros or older values with
    /// [`Backend::UvmRust`]). No reference to it is live; and after [`Mode::Lazy`], it is
    /// prefetched before it is next read or written.
    pub unsafe fn discard(&self, range: Range, mode: Mode) -> Result<()> {
        // SAFETY: the same contract.
        unsafe { self.discard_batch(&[range], mode, &mut Outcome::default()) }
    }

    /// Discards the whole pages of several ranges. Stops at the first that fails;
    /// `outcome` tells how far it came, and is filled in either way.
    ///
    /// # Errors
    /// [`Error::NotSupported`]: nothing has changed, in any of the ranges; where some are
    /// discarded before a driver says that, it is [`Error::Driver`].
    ///
    /// # Safety
    /// As for [`Uvm::discard`], for each range.
    pub unsafe fn discard_batch(
        &self,
        ranges: &[Range],
        mode: Mode,
        outcome: &mut Outcome,
    ) -> Result<()> {
        *outcome = Outcome::default();
        let choice = self.choice()?;
        let flags = match mode {
            Mode::Eager => uapi::DISCARD_EAGER,
            Mode::Lazy => 0,
        };
        match choice.backend {
            Backend::None => Err(Error::NotSupported),
            Backend::UvmRust => self.batch_uvm_rust(choice.fd, ranges, flags, outcome),
            Backend::Native => self.batch_native(choice.fd, ranges, flags, outcome),
            Backend::Cuda => self.batch_cuda(ranges, outcome),
        }
        .inspect_err(|error| self.doubt(*error))
        .map_err(|error| half_way(&ranges[..outcome.done.min(ranges.len())], error))
    }

    /// Brings all pages that a range touches to `place`, and makes memory that was
    /// lazily discarded usable again. Returns when it is done.
    ///
    /// Needs no driver with discard, only UVM (found as for discard) or CUDA.
    pub fn prefetch(&self, range: Range, place: Place) -> Result<()> {
        let range = range.grown()?;
        if range.length == 0 {
            return Ok(());
        }
        match self.uvm_fd() {
            Some(fd) => self.migrate(fd, range, place),
            None => {
                self.not_forked()?;
                let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
                let device = ordinal(cuda, place)?;
                // SAFETY: the per-thread stream is always there.
                unsafe {
                    cuda.not_captured(cuda::STREAM_PER_THREAD)?;
                    cuda.prefetch(range.base, range.length, device, cuda::STREAM_PER_THREAD)?;
                    cuda.synchronize(cuda::STREAM_PER_THREAD)
                }
            }
        }
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
        // An unknown number is EINVAL: only our driver is asked.
        if self.backend() != Backend::UvmRust {
            return Err(Error::NotSupported);
        }
        let fd = self.uvm_fd().ok_or(Error::NotSupported)?;
        let mut params = uapi::FlashMove {
            size: size_of::<uapi::FlashMove>() as u32,
            flags: 0,
            base: range.base,
            length: range.length,
        };
        // SAFETY: the structure of this number, which points to nothing.
        let done = unsafe {
            let arg = (&mut params as *mut uapi::FlashMove).cast::<c_void>();
            self.sys.ioctl(fd, uapi::FLASH_MOVE, arg)
        };
        done.map_err(Error::from_errno)
    }

    /// Discards a range and prepares it at `place` for being written: cheaper than
    /// either alone where the data would otherwise be copied. The memory is usable
    /// when this returns. Pages that the range covers in part are prefetched with
    /// their contents.
    ///
    /// # Safety
    /// As for [`Uvm::discard`], without the need for another prefetch, unless this
    /// fails.
    pub unsafe fn discard_and_prefetch(&self, range: Range, place: Place) -> Result<()> {
        // SAFETY: the same contract, and the prefetch follows.
        unsafe { self.discard(range, Mode::Lazy)? };
        self.prefetch(range, place)
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
    fn uvm_fd(&self) -> Option<i32> {
        let choice = self.choice().ok()?;
        (choice.fd >= 0).then_some(choice.fd)
    }

    fn migrate(&self, fd: i32, range: Range, place: Place) -> Result<()> {
        let mut params = Migrate {
            base: range.base,
            length: range.length,
            destination: match place {
                Place::Host => uapi::CPU_UUID,
                Place::Gpu(uuid) => uuid,
            },
            numa_node: -1,
            ..Migrate::default()
        };
        let status = self.native(fd, uapi::UVM_MIGRATE, &mut params, |p| p.status)?;
        Error::check_status(status)
    }

    fn batch_uvm_rust(
        &self,
        fd: i32,
        ranges: &[Range],
        flags: u32,
        outcome: &mut Outcome,
    ) -> Result<()> {
        outcome.counted = true;
        let one_call = |ranges: &[Range], outcome: &mut Outcome| {
            let mut params = batch(ranges, flags);
            let result = self.call(fd, uapi::DISCARD_BATCH, &mut params);
            outcome.done += params.first_failed as usize;
            outcome.blocks_discarded += params.blocks_discarded;
            outcome.blocks_skipped += params.blocks_skipped;
            outcome.blocks_partial += params.blocks_partial;
            result.map_err(Error::from_errno)
        };
        if ranges.iter().all(|range| range.fits()) {
            return ranges
                .chunks(uapi::DISCARD_MAX_RANGES)
                .try_for_each(|some| one_call(some, outcome));
        }
        in_groups(ranges, outcome, |group, outcome| {
            let before = outcome.done;
            let result = one_call(group, outcome);
            let done = outcome.done - before;
            outcome.done = before;
            (done, result)
        })
    }

    fn batch_native(
        &self,
        fd: i32,
        ranges: &[Range],
        flags: u32,
        outcome: &mut Outcome,
    ) -> Result<()> {
        for range in ranges {
            let range = range.shrunk()?;
            if range.length != 0 {
                let mut params = NativeDiscard {
                    base: range.base,
                    length: range.length,
                    flags: flags.into(),
                    status: 0,
                };
                let status = self.native(fd, uapi::UVM_DISCARD, &mut params, |p| p.status)?;
                Error::check_discard(status)?;
            }
            outcome.done += 1;
        }
        Ok(())
    }

    fn batch_cuda(&self, ranges: &[Range], outcome: &mut Outcome) -> Result<()> {
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        // SAFETY: the per-thread stream is always there.
        unsafe {
            cuda.not_captured(cuda::STREAM_PER_THREAD)?;
            let done = self.cuda_discard(ranges, cuda::STREAM_PER_THREAD, outcome);
            // Also after an error: the groups before it are on their way.
            cuda.synchronize(cuda::STREAM_PER_THREAD).and(done)
        }
    }

    /// Discards in the order of `stream`, by CUDA's own call.
    ///
    /// That call does not take the legacy default stream. It is done in the thread's own
    /// default stream then, between two events of the legacy stream: the legacy stream
    /// waits for all blocking streams, and they for it, but the thread's own waits for
    /// the legacy stream alone ("Stream synchronization behavior", CUDA Driver API).
    ///
    /// # Safety
    /// As for [`Cuda::prefetch`]; nothing is being captured into which it would go.
    pub(crate) unsafe fn cuda_discard(
        &self,
        ranges: &[Range],
        stream: cuda::Stream,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let cuda = self.sys.cuda().ok_or(Error::NotSupported)?;
        let own = cuda::STREAM_PER_THREAD;
        // SAFETY: the special streams are always there; else by our contract.
        unsafe {
            if !stream.is_null() && stream != cuda::STREAM_LEGACY {
                return cuda_discard_groups(cuda, ranges, stream, outcome);
            }
            if broken::LEGACY {
                return cuda_discard_groups(cuda, ranges, own, outcome);
            }
            cuda.order(cuda::STREAM_LEGACY, own)?;
            let done = cuda_discard_groups(cuda, ranges, own, outcome);
            // Also after an error: some groups may be on their way. They must not come later
            // than the caller, who sees an error of this, thinks.
            let ordered = cuda.order(own, cuda::STREAM_LEGACY);
            ordered
                .map_err(|error| cuda.synchronize(own).err().unwrap_or(error))
                .and(done)
        }
    }

    /// The status of one of NVIDIA's calls, which is made again while the driver is busy,
    /// for as long as [`Sys::patience`].
    fn native<T: Copy>(
        &self,
        fd: i32,
        nr: u32,
        params: &mut T,
        status: impl Fn(&T) -> u32,
    ) -> Result<u32> {
        let mut since = None;
        loop {
            // An unknown number and a closed file are the same to the caller.
            self.roomy_call(fd, nr, params)
                .map_err(|errno| match errno {
                    libc::EINVAL => Error::NotSupported,
                    errno => Error::from_errno(errno),
                })?;
            let status = status(params);
            let since = since.get_or_insert_with(Instant::now);
            if status != uapi::NV_ERR_BUSY_RETRY || since.elapsed() >= self.sys.patience() {
                return Ok(status);
            }
            std::thread::yield_now();
        }
    }

    /// A call whose structure has more room than we know of.
    fn roomy_call<T: Copy>(
        &self,
        fd: i32,
        nr: u32,
        params: &mut T,
    ) -> core::result::Result<(), i32> {
        let mut roomy = Roomy {
            params: *params,
            room: [0; ROOM],
        };
        let done = self.call(fd, nr, &mut roomy);
        *params = roomy.params;
        done
    }

    fn call<T>(&self, fd: i32, nr: u32, params: &mut T) -> core::result::Result<(), i32> {
        // SAFETY: callers pass the structure of `nr`. What it points to is an array
        // of ranges that outlives the call, and is only read.
        unsafe { self.sys.ioctl(fd, nr, (params as *mut T).cast::<c_void>()) }
    }
}

/// # Safety
/// `stream` is a stream that CUDA's discard takes.
unsafe fn cuda_discard_groups(
    cuda: &Cuda,
    ranges: &[Range],
    stream: cuda::Stream,
    outcome: &mut Outcome,
) -> Result<()> {
    let call = cuda.mem_discard_batch.ok_or(Error::NotSupported)?;
    in_groups(ranges, outcome, |group, _| {
        let (mut bases, mut sizes) = ([0; GROUP], [0; GROUP]);
        for (i, range) in group.iter().enumerate() {
            bases[i] = range.base;
            sizes[i] = range.length as usize;
        }
        let (bases, sizes) = (bases.as_mut_ptr(), sizes.as_mut_ptr());
        // SAFETY: both arrays hold at least `group.len()` elements; CUDA checks the
        // ranges; the stream by our contract.
        let code = unsafe { call(bases, sizes, group.len(), 0, stream) };
        (if code == 0 { group.len() } else { 0 }, check_range(code))
    })
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

/// CUDA's number of a place.
pub(crate) fn ordinal(cuda: &Cuda, place: Place) -> Result<i32> {
    match place {
        Place::Host => Ok(cuda::DEVICE_CPU),
        Place::Gpu(uuid) => cuda.ordinal(&uuid),
    }
}

fn batch(ranges: &[Range], flags: u32) -> DiscardBatch {
    DiscardBatch {
        size: size_of::<DiscardBatch>() as u32,
        flags,
        ranges: ranges.as_ptr() as u64,
        range_count: ranges.len() as u32,
        range_size: size_of::<Range>() as u32,
        ..DiscardBatch::default()
    }
}

/// Shrinks ranges to pages, leaves out what then is empty, and does the rest in
/// groups. `work` gives how many of its group are done.
fn in_groups(
    ranges: &[Range],
    outcome: &mut Outcome,
    mut work: impl FnMut(&[Range], &mut Outcome) -> (usize, Result<()>),
) -> Result<()> {
    let mut group = [Range::default(); GROUP];
    // Where each of the group stands in `ranges`.
    let mut index = [0; GROUP];
    let mut filled = 0;
    let mut bad = Ok(());
    let mut flush = |group: &[Range], index: &[usize], outcome: &mut Outcome| -> Result<()> {
        if group.is_empty() {
            return Ok(());
        }
        let (done, result) = work(group, outcome);
        if let (Err(_), Some(&at)) = (&result, index.get(done)) {
            outcome.done = at;
        }
        result
    };
    let mut seen = ranges.len();
    for (i, range) in ranges.iter().enumerate() {
        match range.shrunk() {
            Ok(range) if range.length == 0 => continue,
            Ok(range) => {
                group[filled] = range;
                index[filled] = i;
                filled += 1;
            }
            Err(error) => {
                bad = Err(error);
                seen = i;
                break;
            }
        }
        if filled == GROUP {
            flush(&group, &index, outcome)?;
            filled = 0;
        }
    }
    flush(&group[..filled], &index[..filled], outcome)?;
    outcome.done = seen;
    bad
}

mod probe;
#[cfg(test)]
mod tests;
