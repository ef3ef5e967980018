// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Reads and writes of a device: where pages lie, and their encryption and checksums.
//!
//! Each page is encrypted on its own, with the stamp that it got when it was written, which no other write ever
//! gets. A checksum of what is written and the stamp stays in the table.

use super::bindings;
use super::dev::{Dev, Seam};
use crate::ffi::discard::as_c;
use crate::ffi::mem::may_allocate;
use crate::ffi::time;
use crate::policy::flash::probe::{is_ours, MARK, PROBED};
use crate::policy::flash::table::{Trim, RESERVED_SLOTS, SLOT_PAGES};
use crate::policy::flash::{Piece, Place};
use crate::policy::mask::PageMask;
use bindings::{page, skcipher_request, uvm_rust_bvec, uvm_va_block_struct};
use core::ffi::c_int;
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

/// The kernel's error code, which its crate lacks.
const ENOTEMPTY: c_int = 39;

/// The priority of an operation: the kernel's level of best-effort I/O.
///
/// Our arbiter lets operations begin; the kernel's I/O scheduler, if there is one, orders them: reads for faults first,
/// then requests, then spills. All are best effort: a process is not to keep others from a disk of which we have a part,
/// and where the host is full, faults wait for spills.
#[derive(Clone, Copy)]
pub(super) enum Urgency {
    Fault = 0,
    /// The level of a process that asks for no other.
    Request = 4,
    Background = 7,
}

/// How many pages are encrypted or decrypted at a time: then other threads may run, and the table is locked for their
/// checksums. A buffer also asks for so many contiguous pages, which the block layer merges.
const BATCH: u16 = 32;

/// A buffer for reads, writes and copies. Dropping it releases the pages that it holds and owns.
pub(crate) struct Io {
    /// By page of a va_block: null, or a page that this holds a reference on.
    held: KVVec<*mut page>,
    /// Pages of its own, to encrypt into and to copy through; as many as `held`, or none.
    own: KVVec<*mut page>,
    /// The kernel's vector of pages; as many as `held`.
    room: KVVec<uvm_rust_bvec>,
    request: Request,
}

/// Memory for a request to a cipher, in words; empty until it is allocated.
struct Request(KVVec<u64>);

impl Request {
    const fn none() -> Self {
        Self(KVVec::new())
    }

    /// The memory for a request to this device's cipher, allocated if there is none yet.
    fn of(&mut self, dev: &Seam) -> Option<*mut skcipher_request> {
        let words = dev.request_bytes().div_ceil(size_of::<u64>());
        if self.0.len() < words {
            may_allocate().ok()?;
            self.0 = KVVec::from_elem(0, words, GFP_KERNEL).ok()?;
        }
        Some(self.0.as_mut_ptr().cast())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // Erases what the cipher left there before the memory is freed.
        for word in self.0.iter_mut() {
            // SAFETY: it is ours.
            unsafe { core::ptr::write_volatile(word, 0) };
        }
    }
}

// SAFETY: references on pages belong to no thread.
unsafe impl Send for Io {}

/// Encrypts pages into others, or decrypts them in place. Returns how many were done, from the first on. Each page
/// has the next stamp after the page before.
///
/// # Safety
///
/// The caller keeps all the pages, and holds no spinlock.
unsafe fn crypt(
    dev: &Dev,
    request: &mut Request,
    from: &mut [*mut page],
    to: Option<&mut [*mut page]>,
    stamp: u64,
) -> u16 {
    let encrypt = to.is_some();
    let pages = to
        .as_ref()
        .map_or(from.len(), |to| to.len().min(from.len()));
    let from = from.as_mut_ptr();
    let to = to.map_or(from, |to| to.as_mut_ptr());
    let Some(room) = request.of(dev.seam()) else {
        return 0;
    };
    let (dev, pages) = (dev.seam().as_ptr(), pages as u32);
    // SAFETY: by this function's contract; the device is there, and the room what it asks for.
    unsafe { bindings::uvm_seam_flash_crypt(dev, room, from, to, pages, stamp, encrypt) as u16 }
}

fn position(place: Place) -> u64 {
    let slot = u64::from(RESERVED_SLOTS) + u64::from(place.slot);
    (slot * u64::from(SLOT_PAGES) + u64::from(place.offset)) * PAGE_SIZE as u64
}

/// Splits the piece into pieces of [`BATCH`] pages.
fn batches(piece: &Piece) -> impl Iterator<Item = Piece> + '_ {
    let firsts = (0..piece.pages.pages()).step_by(BATCH.into());
    firsts.map(|first| piece.part(first, BATCH))
}

/// The part of `pages` that a piece covers; `None` if an entry there is null.
fn of_piece<'a>(pages: &'a mut [*mut page], piece: &Piece) -> Option<&'a mut [*mut page]> {
    let range = usize::from(piece.pages.first())..piece.pages.outer().into();
    let pages = pages.get_mut(range)?;
    (!pages.iter().any(|page| page.is_null())).then_some(pages)
}

/// The checksums of pages, at most [`BATCH`], the first of which has this stamp.
///
/// # Safety
///
/// The caller keeps all the pages.
unsafe fn sums_of(pages: &mut [*mut page], stamp: u64) -> [u32; BATCH as usize] {
    let mut sums = [0; BATCH as usize];
    let count = pages.len().min(sums.len()) as u32;
    // SAFETY: by this function's contract; there is room for so many sums.
    unsafe {
        bindings::uvm_seam_flash_sums(pages.as_mut_ptr(), count, stamp, sums.as_mut_ptr());
    }
    sums
}

impl Io {
    /// Makes a buffer for reads of a device, which allocates nothing later.
    pub(super) fn for_reads(dev: &Seam) -> Option<Self> {
        let mut io = Self::new(false, false)?;
        io.request.of(dev)?;
        Some(io)
    }

    /// Makes a buffer for writes and copies, which allocates nothing later.
    pub(super) fn for_writes(dev: &Seam) -> Option<Self> {
        let mut io = Self::new(true, false)?;
        io.request.of(dev)?;
        Some(io)
    }

    /// Makes a buffer. With `own` it has pages of its own, as writes and copies need; with `account` the caller is
    /// charged.
    pub(super) fn new(own: bool, account: bool) -> Option<Self> {
        let flags = if account {
            GFP_KERNEL_ACCOUNT
        } else {
            GFP_KERNEL
        };
        may_allocate().ok()?;
        let none = || KVVec::from_elem(null_mut(), SLOT_PAGES.into(), flags).ok();
        let mut io = Self {
            held: none()?,
            own: KVVec::new(),
            room: KVVec::from_elem(uvm_rust_bvec::default(), SLOT_PAGES.into(), flags).ok()?,
            request: Request::none(),
        };
        if own {
            io.own = none()?;
            for batch in io.own.chunks_mut(BATCH.into()) {
                if !fill(batch, BATCH.ilog2(), account)
                    && !batch.chunks_mut(1).all(|page| fill(page, 0, account))
                {
                    return None;
                }
            }
        }
        Some(io)
    }

    /// Holds the host memory of `pages`; false if some page has none.
    ///
    /// # Safety
    ///
    /// The block is locked.
    pub(super) unsafe fn hold(
        &mut self,
        block: *mut uvm_va_block_struct,
        pages: &PageMask,
    ) -> bool {
        self.release();
        let mut there = as_c(pages);
        // SAFETY: by this function's contract; there is room for a block's pages, and none is held. What is
        // held from now on is given back by `release`.
        unsafe {
            bindings::uvm_seam_flash_host(block, &mut there, self.held.as_mut_ptr(), true);
        }
        let all = there.words == *pages.words();
        if !all {
            self.release();
        }
        all
    }

    /// Those of `pages` whose host memory is still the held one.
    ///
    /// # Safety
    ///
    /// The block is locked.
    pub(super) unsafe fn unchanged(
        &mut self,
        block: *mut uvm_va_block_struct,
        pages: &PageMask,
    ) -> PageMask {
        let mut same = as_c(pages);
        // SAFETY: by this function's contract; as many are held as a block has pages.
        unsafe { bindings::uvm_seam_flash_host(block, &mut same, self.held.as_mut_ptr(), false) };
        PageMask::from_words(same.words)
    }

    /// Reads or writes some of the held pages, or of its own: 0 or an errno.
    ///
    /// # Safety
    ///
    /// The device is open, and no lock is held.
    unsafe fn transfer(
        &mut self,
        dev: &Seam,
        own: bool,
        (first, pages): (u16, u16),
        at: u64,
        write: bool,
        urgency: Urgency,
    ) -> c_int {
        let of = if own { &mut self.own } else { &mut self.held };
        let end = usize::from(first) + usize::from(pages);
        let Some(of) = of.get_mut(first.into()..end) else {
            return EINVAL.to_errno();
        };
        if of.iter().any(|page| page.is_null()) || of.len() > self.room.len() {
            return EINVAL.to_errno();
        }
        let (of, room) = (of.as_mut_ptr(), self.room.as_mut_ptr());
        // SAFETY: by this function's contract; so many pages are there, and as much room.
        unsafe {
            bindings::uvm_seam_flash_transfer(
                dev.as_ptr(),
                of,
                room,
                pages,
                at,
                write,
                urgency as u8,
            )
        }
    }

    /// Reads a piece into the held pages: 0 or an errno.
    ///
    /// # Safety
    ///
    /// The device is open, and no lock is held; the place of the piece is pinned.
    pub(super) unsafe fn read(&mut self, dev: &Dev, piece: &Piece, urgency: Urgency) -> c_int {
        let pages = (piece.pages.first(), piece.pages.pages());
        let at = position(piece.place);
        // SAFETY: by this function's contract.
        unsafe { self.transfer(dev.seam(), false, pages, at, false, urgency) }
    }

    /// Decrypts in place the pages that were read. Returns the pages whose checksums are right, and those whose are
    /// not.
    pub(super) fn decrypt(&mut self, dev: &Dev, piece: &Piece) -> (PageMask, PageMask) {
        let (mut right, mut wrong) = (PageMask::EMPTY, PageMask::EMPTY);
        for batch in batches(piece) {
            let Some(pages) = of_piece(&mut self.held, &batch) else {
                continue;
            };
            // SAFETY: the pages are held.
            let sums = unsafe { sums_of(pages, batch.stamp) };
            let as_written = dev.flash().table.lock().as_written(&batch, &sums);
            wrong |= PageMask::from(batch.pages) - as_written;
            for run in as_written.runs() {
                let run = batch.part(run.first() - batch.pages.first(), run.pages());
                if let Some(pages) = of_piece(&mut self.held, &run) {
                    // SAFETY: as above.
                    let done = unsafe { crypt(dev, &mut self.request, pages, None, run.stamp) };
                    right |= PageMask::from(run.part(0, done).pages);
                }
            }
        }
        (right, wrong)
    }

    /// Encrypts a piece of the held pages into its own, and notes the checksums. Returns whether that was done. The
    /// checksums are computed before the device gets the pages, so that a change on the way is noticed. The place is
    /// pinned: nobody reads what a failed write has noted there.
    pub(super) fn seal(&mut self, dev: &Dev, piece: &Piece) -> bool {
        let request = &mut self.request;
        batches(piece).all(|batch| {
            let from = of_piece(&mut self.held, &batch);
            let Some((from, to)) = from.zip(of_piece(&mut self.own, &batch)) else {
                return false;
            };
            time::rest();
            // SAFETY: some are held, and the others ours; no spinlock is held.
            let sums = unsafe {
                if crypt(dev, request, from, Some(&mut *to), batch.stamp) < batch.pages.pages() {
                    return false;
                }
                sums_of(to, batch.stamp)
            };
            dev.flash().table.lock().note_sums(&batch, &sums);
            true
        })
    }

    /// Writes a sealed piece. Returns whether the device took all of it.
    ///
    /// # Safety
    ///
    /// The device is open, and no lock is held; the place of the piece is pinned.
    pub(super) unsafe fn write(&mut self, dev: &Dev, piece: &Piece) -> bool {
        let own = (piece.pages.first(), piece.pages.pages());
        let at = position(piece.place);
        // SAFETY: by this function's contract.
        unsafe { self.transfer(dev.seam(), true, own, at, true, Urgency::Background) == 0 }
    }

    /// Reads `pages` pages into its own, or writes them from there. Returns whether that succeeded.
    ///
    /// # Safety
    ///
    /// The device is open, and no lock is held; the place is pinned.
    pub(super) unsafe fn copy(&mut self, dev: &Dev, at: Place, pages: u16, write: bool) -> bool {
        let (dev, at) = (dev.seam(), position(at));
        // SAFETY: by this function's contract.
        unsafe { self.transfer(dev, true, (0, pages), at, write, Urgency::Background) == 0 }
    }

    /// Whether the pages of a piece that [`Io::copy`] read have the checksums that were written. The pages are
    /// numbered from 0.
    pub(super) fn is_as_written(&mut self, dev: &Dev, piece: &Piece) -> bool {
        batches(piece).all(|batch| {
            let Some(pages) = of_piece(&mut self.own, &batch) else {
                return false;
            };
            // SAFETY: the pages are ours.
            let sums = unsafe { sums_of(pages, batch.stamp) };
            let table = dev.flash().table.lock();
            table.as_written(&batch, &sums) == PageMask::from(batch.pages)
        })
    }

    /// Marks a device as ours: 0 or an errno. Without `force` the device has to be ours already, or empty. The buffer
    /// has pages of its own.
    ///
    /// # Safety
    ///
    /// The device is open, and nobody else uses it; no lock is held.
    pub(super) unsafe fn mark(&mut self, dev: &Seam, force: bool) -> c_int {
        // SAFETY: by this function's contract.
        let read = unsafe { self.transfer(dev, true, (0, PROBED), 0, false, Urgency::Request) };
        if read != 0 {
            return read;
        }
        for of in 0..PROBED {
            if !force && !is_ours(self.bytes(of), of == 0) {
                return -ENOTEMPTY;
            }
        }
        let bytes = self.bytes(0);
        bytes.fill(0);
        bytes
            .iter_mut()
            .zip(MARK)
            .for_each(|(to, from)| *to = *from);
        // SAFETY: as above.
        unsafe { self.transfer(dev, true, (0, 1), 0, true, Urgency::Request) }
    }

    /// The bytes of one of its own pages; none if it has no such page.
    fn bytes(&mut self, of: u16) -> &mut [u8] {
        let Some(own) = self.own.get(usize::from(of)) else {
            return &mut [];
        };
        // SAFETY: it is ours, and nobody else uses it as long as `self` is borrowed.
        unsafe { core::slice::from_raw_parts_mut(bindings::uvm_seam_page_bytes(*own), PAGE_SIZE) }
    }

    /// Releases the held pages.
    pub(super) fn release(&mut self) {
        put(&mut self.held);
    }
}

/// Discards slots of the device: 0 or an errno.
///
/// # Safety
///
/// The device is open, and no lock is held; nobody reads or writes there.
pub(super) unsafe fn discard(dev: &Seam, trim: &Trim) -> c_int {
    let (slot, offset) = (trim.first(), 0);
    let at = position(Place { slot, offset });
    // SAFETY: by this function's contract.
    unsafe { bindings::uvm_seam_flash_discard(dev.as_ptr(), at, trim.bytes()) }
}

/// Allocates `1 << order` pages, for which `room` has entries; false without memory. It is waited for only for a single page:
/// several are an attempt, behind which single ones are asked for.
fn fill(room: &mut [*mut page], order: u32, account: bool) -> bool {
    let waits = order == 0;
    room.len() == 1 << order
        // SAFETY: so many pages have room.
        && unsafe { bindings::uvm_seam_pages_new(room.as_mut_ptr(), order, account, waits) }
}

/// Puts the references on pages; null entries are skipped.
fn put(pages: &mut [*mut page]) {
    // SAFETY: all callers have a reference on what is not null.
    unsafe { bindings::uvm_seam_pages_put(pages.as_mut_ptr(), pages.len() as u32) };
}

impl Drop for Io {
    fn drop(&mut self) {
        put(&mut self.held);
        put(&mut self.own);
    }
}
