// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An open device, with its table and what is counted of it.

use super::bindings;
use super::io::Io;
use crate::driver::flash::{Counter, Flash};
use crate::ffi::time::now_us;
use crate::policy::flash::arbiter;
use crate::policy::flash::arbiter::Arbiter;
use crate::policy::flash::cause::Cause;
use crate::policy::flash::pool::{self, Line, Pool, Who};
use crate::policy::flash::wait;
use bindings::uvm_seam_flash_dev;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Milliseconds until who waits for a turn with the device looks again without being told.
const LOOK_MS: u32 = 2;

/// The same for who waits for what reads are made with.
const SETS_MS: u32 = 1000;

/// A device that is attached, or has been. Whoever has a reference may read and write what it has pinned; the file
/// is closed when nothing is on it any more.
pub(crate) struct Dev {
    seam: Seam,
    flash: Pin<KBox<Flash>>,
    /// Raised whenever a read or a write ends, or there is room.
    progress: AtomicU32,
    arbiter: Arbiter,
    /// It has refused to be trimmed.
    forgets_nothing: AtomicBool,
    /// Somebody will look whether it is to be trimmed.
    is_looked_after: AtomicBool,
}

/// An operation of a device for others than faults, which ends when this is dropped.
#[must_use]
pub(super) struct Others(Arc<Dev>);

impl Drop for Others {
    fn drop(&mut self) {
        self.0.arbiter.others_end();
        self.0.tell();
    }
}

impl wait::Device for Dev {
    fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    fn now_us(&self) -> u64 {
        now_us()
    }

    fn progress(&self) -> u32 {
        self.progress()
    }

    fn wait(&self, progress: u32) {
        self.wait(progress, LOOK_MS);
    }

    fn tell(&self) {
        self.tell();
    }
}

/// The line of those who wait for what reads of a device are made with.
struct InLine<'a>(&'a Dev);

impl Line for InLine<'_> {
    type Set = Io;

    fn with<T>(&mut self, f: impl FnOnce(&mut Pool<Io>) -> T) -> T {
        f(&mut self.0.flash.sets.lock())
    }

    fn progress(&mut self) -> u32 {
        self.0.progress()
    }

    fn wait(&mut self, progress: u32) {
        self.0.wait(progress, SETS_MS);
    }

    fn nap(&mut self, progress: u32) {
        self.0.wait(progress, LOOK_MS);
    }

    fn tell(&mut self) {
        self.0.tell();
    }
}

/// What a read of a device is made with. Dropped, it goes back to the device, and lets host memory go that it keeps.
pub(super) struct Set {
    dev: Arc<Dev>,
    who: Who,
    /// It is only taken out when this is dropped.
    io: Option<Io>,
}

impl Set {
    /// Takes one, if it can be had at once.
    pub(super) fn try_take(dev: &Arc<Dev>, who: Who) -> Option<Self> {
        let io = dev.flash.sets.lock().try_take(who)?;
        Some(Self::new(dev, who, io))
    }

    /// Takes one unless `is_stopped` says, now and then, that nobody wants it any more; `None` then
    /// ([`pool::take_unless`]). No va_block is locked.
    pub(super) fn take_unless(
        dev: &Arc<Dev>,
        who: Who,
        is_stopped: impl Fn() -> bool,
    ) -> Option<Self> {
        let io = pool::take_unless(&mut InLine(dev), who, |_| is_stopped())?;
        Some(Self::new(dev, who, io))
    }

    /// Takes one, and may wait for it. No va_block is locked.
    pub(super) fn take(dev: &Arc<Dev>, who: Who) -> Self {
        Self::new(dev, who, pool::take(&mut InLine(dev), who))
    }

    fn new(dev: &Arc<Dev>, who: Who, io: Io) -> Self {
        let dev = dev.clone();
        Self {
            dev,
            who,
            io: Some(io),
        }
    }

    /// Whether it is a set of `dev`.
    pub(super) fn is_of(&self, dev: &Arc<Dev>) -> bool {
        core::ptr::eq::<Dev>(&*self.dev, &**dev)
    }

    pub(super) fn io(&mut self) -> Option<&mut Io> {
        self.io.as_mut()
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if let Some(mut io) = self.io.take() {
            io.release();
            pool::give_back(&mut InLine(&self.dev), self.who, io);
        }
    }
}

/// Faults wait for a read of a device, which has not begun; dropped, it will not for them.
pub(super) struct Waits {
    dev: Arc<Dev>,
    waits: Option<arbiter::Waits>,
}

impl Waits {
    pub(super) fn new(dev: Arc<Dev>) -> Self {
        let waits = Some(dev.arbiter.wait(now_us()));
        Self { dev, waits }
    }

    /// The read of so many pages begins.
    pub(super) fn begin(mut self, pages: u64) {
        if let Some(waits) = self.waits.take() {
            self.dev.arbiter.begin(waits, pages);
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(waits) = self.waits.take() {
            self.dev.arbiter.give_up(waits);
        }
        // Those go on who let faults go first.
        self.dev.tell();
    }
}

/// C's part of a device. Invariant: it came from `uvm_seam_flash_open`, and is freed when this is dropped.
pub(crate) struct Seam {
    dev: NonNull<uvm_seam_flash_dev>,
    /// How many bytes what its cipher is asked for takes.
    request_bytes: usize,
}

// SAFETY: a file and a cipher belong to no thread.
unsafe impl Send for Seam {}
// SAFETY: what is done with it by way of `&self` may be done by many at a time.
unsafe impl Sync for Seam {}

impl Seam {
    /// # Safety
    ///
    /// `dev` is what `uvm_seam_flash_open` has filled in, and nobody else's.
    pub(super) unsafe fn new(dev: *mut uvm_seam_flash_dev, request_bytes: u32) -> Result<Self> {
        let dev = NonNull::new(dev).ok_or(ENOMEM)?;
        let request_bytes = request_bytes as usize;
        Ok(Self { dev, request_bytes })
    }

    pub(super) fn as_ptr(&self) -> *mut uvm_seam_flash_dev {
        self.dev.as_ptr()
    }

    pub(super) fn request_bytes(&self) -> usize {
        self.request_bytes
    }
}

impl Drop for Seam {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant, and it is not used any more.
        unsafe { bindings::uvm_seam_flash_free(self.as_ptr()) };
    }
}

impl Dev {
    /// Puts the device of C's and what Rust has of it together, which go together.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no memory; then C's part is freed.
    pub(crate) fn new(seam: Seam, flash: Pin<KBox<Flash>>) -> Result<Arc<Self>> {
        let progress = AtomicU32::new(0);
        Ok(Arc::new(
            Self {
                seam,
                flash,
                progress,
                arbiter: Arbiter::new(),
                forgets_nothing: AtomicBool::new(false),
                is_looked_after: AtomicBool::new(false),
            },
            GFP_KERNEL,
        )?)
    }

    pub(super) fn seam(&self) -> &Seam {
        &self.seam
    }

    pub(super) fn flash(&self) -> &Flash {
        &self.flash
    }

    pub(super) fn counts(&self, counter: Counter, n: u64) -> u64 {
        self.flash.counters.add(counter, n)
    }

    /// Whether the device is there, and has failed nothing.
    pub(super) fn is_sound(&self) -> bool {
        let counters = &self.flash.counters;
        let failed = [Counter::WriteErrors, Counter::ReadErrors].map(|of| counters.get(of));
        failed == [0; 2] && self.is_there()
    }

    /// Whether the device is there. One that was pulled out is not, also when it is put in again.
    pub(super) fn is_there(&self) -> bool {
        // SAFETY: by the invariant of `Seam`; who uses the device has not seen it closed.
        unsafe { bindings::uvm_seam_flash_is_there(self.seam.as_ptr()) }
    }

    /// Whether it may be told to forget something: it is there, and has not refused yet.
    pub(super) fn forgets(&self) -> bool {
        !self.forgets_nothing.load(Relaxed) && self.is_there()
    }

    /// It has refused, and is not asked again.
    pub(super) fn forgets_nothing(&self) {
        self.forgets_nothing.store(true, Relaxed);
    }

    /// Says whether somebody will look whether it is to be trimmed; returns whether somebody would have.
    pub(super) fn is_looked_after(&self, will: bool) -> bool {
        self.is_looked_after.swap(will, Relaxed)
    }

    /// Changes whenever a read or a write ends, or there is room.
    pub(super) fn progress(&self) -> u32 {
        // What is looked at after this is no older than it.
        self.progress.load(Acquire)
    }

    /// Tells those who wait for that.
    pub(crate) fn tell(&self) {
        // A waiter puts itself on the wait queue before it looks; waking it takes the queue's lock after this store.
        self.progress.fetch_add(1, Release);
        // SAFETY: by the invariant of `Seam`.
        unsafe { bindings::uvm_seam_flash_tell(self.seam.as_ptr()) };
    }

    /// Waits until it is not `progress` any more, or so many milliseconds. No lock is held but a VA space's.
    pub(super) fn wait(&self, progress: u32, ms: u32) {
        let at = self.progress.as_ptr();
        // SAFETY: by the invariant of `Seam`; it may sleep here. C reads the number at once.
        unsafe { bindings::uvm_seam_flash_wait(self.seam.as_ptr(), at, progress, ms) };
    }

    /// Waits until an operation may begin for this cause, and begins it. No va_block is locked. If the caller holds a VA
    /// space's lock in read mode, or the process's mmap lock, writers wait meanwhile, and so do all behind them (D-lock).
    pub(super) fn begin_for_others(dev: &Arc<Self>, cause: Cause) -> Others {
        // Nobody stops it.
        while !wait::begin(&**dev, || cause.class(), || false) {}
        Others(dev.clone())
    }

    /// The same, until `is_stopped` says so: then none begins.
    pub(super) fn begin_unless(
        dev: &Arc<Self>,
        cause: Cause,
        is_stopped: impl Fn() -> bool,
    ) -> Option<Others> {
        Self::begin_as(dev, || cause, is_stopped)
    }

    /// The same for a cause that is asked for at each look.
    pub(super) fn begin_as(
        dev: &Arc<Self>,
        cause: impl Fn() -> Cause,
        is_stopped: impl Fn() -> bool,
    ) -> Option<Others> {
        wait::begin(&**dev, || cause().class(), is_stopped).then(|| Others(dev.clone()))
    }

    /// Waits until an operation might begin for this cause, or `is_stopped` says that nobody wants it any more. None is
    /// begun.
    pub(super) fn pass_unless(&self, cause: Cause, is_stopped: impl Fn() -> bool) {
        wait::pass(self, cause.class(), is_stopped);
    }

    /// The most operations for others that a fault's read was behind.
    pub(super) fn most_ahead_of_faults(&self) -> u64 {
        self.arbiter.most_ahead()
    }

    /// Lets the file go.
    ///
    /// # Safety
    ///
    /// Nothing is on the device, and nobody reads or writes it any more.
    pub(super) unsafe fn close(&self) {
        // SAFETY: by this function's contract.
        unsafe { bindings::uvm_seam_flash_close(self.seam.as_ptr()) };
    }
}
