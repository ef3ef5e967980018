// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! An open device, with its table and its counters.

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

/// Milliseconds after which a thread that waits for a turn with the device looks again without being told.
const LOOK_MS: u32 = 2;

/// Milliseconds after which a thread that waits for a set of buffers looks again without being told.
const SETS_MS: u32 = 1000;

/// A device that is attached, or has been. The holder of a reference may read and write the places that it has
/// pinned. The file is closed when nothing is on the device any more.
pub(crate) struct Dev {
    seam: Seam,
    flash: Pin<KBox<Flash>>,
    /// Goes up whenever a read or a write ends, or room is made.
    progress: AtomicU32,
    arbiter: Arbiter,
    /// Whether the device has refused to be trimmed.
    forgets_nothing: AtomicBool,
    /// Whether the trimming work is queued.
    is_looked_after: AtomicBool,
}

/// An operation of a device for others than faults. Dropping this ends the operation.
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

/// The line of the threads that wait for a set of buffers.
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

/// A set of buffers for a read of a device. Dropping it releases the host memory that it holds, and gives the set
/// back to the device.
pub(super) struct Set {
    dev: Arc<Dev>,
    who: Who,
    /// `None` only while this is being dropped.
    io: Option<Io>,
}

impl Set {
    /// Takes a set, if one is free.
    pub(super) fn try_take(dev: &Arc<Dev>, who: Who) -> Option<Self> {
        let io = dev.flash.sets.lock().try_take(who)?;
        Some(Self::new(dev, who, io))
    }

    /// Takes a set, for which it may wait. `None` once `is_stopped`, which is asked now and then, says so
    /// ([`pool::take_unless`]). No va_block is locked.
    pub(super) fn take_unless(
        dev: &Arc<Dev>,
        who: Who,
        is_stopped: impl Fn() -> bool,
    ) -> Option<Self> {
        let io = pool::take_unless(&mut InLine(dev), who, |_| is_stopped())?;
        Some(Self::new(dev, who, io))
    }

    /// Takes a set, for which it may wait. No va_block is locked.
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

    /// Whether the set is of `dev`.
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

/// Faults wait for a read of a device that has not begun. Dropping this says that no read will begin for them.
pub(super) struct Waits {
    dev: Arc<Dev>,
    waits: Option<arbiter::Waits>,
}

impl Waits {
    pub(super) fn new(dev: Arc<Dev>) -> Self {
        let waits = Some(dev.arbiter.wait(now_us()));
        Self { dev, waits }
    }

    /// Notes that the read of `pages` pages begins.
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
        // Wakes the threads that let faults go first.
        self.dev.tell();
    }
}

/// C's part of a device. Invariant: it came from `uvm_seam_flash_open`, and is freed when this is dropped.
pub(crate) struct Seam {
    dev: NonNull<uvm_seam_flash_dev>,
    /// How many bytes a request of the device's cipher takes.
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
    /// Puts C's and Rust's parts of a device together; both are freed together.
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

    /// Whether the device is plugged in, and has failed no operation.
    pub(super) fn is_sound(&self) -> bool {
        let counters = &self.flash.counters;
        let failed = [Counter::WriteErrors, Counter::ReadErrors].map(|of| counters.get(of));
        failed == [0; 2] && self.is_there()
    }

    /// Whether the device is plugged in. A device that was pulled out stays gone, even when it is plugged in again.
    pub(super) fn is_there(&self) -> bool {
        // SAFETY: by the invariant of `Seam`; who uses the device has not seen it closed.
        unsafe { bindings::uvm_seam_flash_is_there(self.seam.as_ptr()) }
    }

    /// Whether the device may be trimmed: it is plugged in, and has not refused yet.
    pub(super) fn forgets(&self) -> bool {
        !self.forgets_nothing.load(Relaxed) && self.is_there()
    }

    /// Notes that the device has refused to be trimmed, so that it is not asked again.
    pub(super) fn forgets_nothing(&self) {
        self.forgets_nothing.store(true, Relaxed);
    }

    /// Notes whether the trimming work is queued. Returns whether it was.
    pub(super) fn is_looked_after(&self, will: bool) -> bool {
        self.is_looked_after.swap(will, Relaxed)
    }

    /// A number that changes whenever a read or a write ends, or room is made.
    pub(super) fn progress(&self) -> u32 {
        // What is read after this is no older than the number.
        self.progress.load(Acquire)
    }

    /// Raises [`Dev::progress`], and wakes the threads that wait for that.
    pub(crate) fn tell(&self) {
        // A waiter puts itself on the wait queue before it looks; waking it takes the queue's lock after this store.
        self.progress.fetch_add(1, Release);
        // SAFETY: by the invariant of `Seam`.
        unsafe { bindings::uvm_seam_flash_tell(self.seam.as_ptr()) };
    }

    /// Waits until [`Dev::progress`] is not `progress` any more, or `ms` milliseconds. No lock is held but a VA
    /// space's.
    pub(super) fn wait(&self, progress: u32, ms: u32) {
        let at = self.progress.as_ptr();
        // SAFETY: by the invariant of `Seam`; it may sleep here. C reads the number at once.
        unsafe { bindings::uvm_seam_flash_wait(self.seam.as_ptr(), at, progress, ms) };
    }

    /// Waits until an operation may begin for this cause, and begins it. No va_block is locked. If the caller holds a
    /// VA space's lock in read mode, or the process's mmap lock, that keeps writers waiting, and everybody behind
    /// them (D-lock).
    pub(super) fn begin_for_others(dev: &Arc<Self>, cause: Cause) -> Others {
        // This wait is never stopped.
        while !wait::begin(&**dev, || cause.class(), || false) {}
        Others(dev.clone())
    }

    /// As [`Dev::begin_for_others`], unless `is_stopped` says so; then no operation begins.
    pub(super) fn begin_unless(
        dev: &Arc<Self>,
        cause: Cause,
        is_stopped: impl Fn() -> bool,
    ) -> Option<Others> {
        Self::begin_as(dev, || cause, is_stopped)
    }

    /// As [`Dev::begin_unless`]; each look asks for the cause anew.
    pub(super) fn begin_as(
        dev: &Arc<Self>,
        cause: impl Fn() -> Cause,
        is_stopped: impl Fn() -> bool,
    ) -> Option<Others> {
        wait::begin(&**dev, || cause().class(), is_stopped).then(|| Others(dev.clone()))
    }

    /// Waits until an operation might begin for this cause, or `is_stopped` says so. Begins none.
    pub(super) fn pass_unless(&self, cause: Cause, is_stopped: impl Fn() -> bool) {
        wait::pass(self, cause.class(), is_stopped);
    }

    /// The most operations for others that were ahead of a fault's read.
    pub(super) fn most_ahead_of_faults(&self) -> u64 {
        self.arbiter.most_ahead()
    }

    /// Closes the device's file.
    ///
    /// # Safety
    ///
    /// No data are on the device, and nobody reads or writes it any more.
    pub(super) unsafe fn close(&self) {
        // SAFETY: by this function's contract.
        unsafe { bindings::uvm_seam_flash_close(self.seam.as_ptr()) };
    }
}
