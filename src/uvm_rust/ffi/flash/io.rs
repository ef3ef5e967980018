// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Reads and writes of a device: where what lies, which pages are encrypted, and what is known of them.
//!
//! Each page is encrypted on its own, with the stamp that it got when it was written, which no other write ever
//! gets. A checksum of what is written and the stamp stays in the table.

use super::bindings;
use super::dev::{Dev, Seam};
use crate::policy::flash::probe::{is_ours, MARK, PROBED};
use crate::policy::flash::table::{RESERVED_SLOTS, SLOT_PAGES};
use crate::policy::flash::{Piece, Place};
use crate::policy::mask::PageMask;
use bindings::{page, skcipher_request, uvm_rust_bvec, uvm_va_block_struct};
use core::ffi::c_int;
use core::marker::PhantomData;
use core::ptr::{null_mut, NonNull};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

/// The kernel's, of which its crate knows nothing.
const ENOTEMPTY: c_int = 39;

/// Who comes first: the kernel's level of best-effort I/O.
///
/// The arbiter between those who share the device is the kernel's I/O scheduler, to which we
/// say who comes first: whoever waits in a fault, then who asked in time, then spills. All
/// are best effort: a process is not to keep others from a disk of which we have a part, and
/// where the host is full, faults wait for spills.
#[derive(Clone, Copy)]
pub(super) enum Urgency {
    Fault = 0,
    /// As of whoever asks for nothing else.
    Request = 4,
    Background = 7,
}

/// A buffer for reads, writes and copies; what it holds and has is given back when it is dropped.
pub(super) struct Io {
    /// By page of a va_block: null, or one that this has a reference on.
    held: KVVec<*mut page>,
    /// What is encrypted into, and copied by way of; as many, or none.
    own: KVVec<*mut page>,
    /// As many, for the kernel.
    room: KVVec<uvm_rust_bvec>,
}

// SAFETY: references on pages belong to no thread.
unsafe impl Send for Io {}

/// What encrypts. Invariant: it came from `uvm_seam_flash_request_new`.
struct Cipher<'a>(NonNull<skcipher_request>, PhantomData<&'a Dev>);

impl<'a> Cipher<'a> {
    fn new(dev: &'a Dev) -> Option<Self> {
        // SAFETY: the device is there, and longer than what is made.
        let request = unsafe { bindings::uvm_seam_flash_request_new(dev.seam().as_ptr()) };
        NonNull::new(request).map(|request| Self(request, PhantomData))
    }

    /// Encrypts a page into another, or decrypts it; whether that was done.
    ///
    /// # Safety
    ///
    /// Both are pages that are kept.
    unsafe fn crypt(&mut self, from: *mut page, to: *mut page, stamp: u64, encrypt: bool) -> bool {
        // SAFETY: by the type's invariant and this function's contract; it may sleep here.
        unsafe { bindings::uvm_seam_flash_crypt(self.0.as_ptr(), from, to, stamp, encrypt) }
    }
}

impl Drop for Cipher<'_> {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_flash_request_free(self.0.as_ptr()) };
    }
}

/// What became of a write of a piece.
pub(super) enum Wrote {
    /// The device has it.
    All,
    /// It was not tried.
    Nothing,
    /// The device may have some of it.
    Failed,
}

fn position(place: Place) -> u64 {
    let slot = u64::from(RESERVED_SLOTS) + u64::from(place.slot);
    (slot * u64::from(SLOT_PAGES) + u64::from(place.offset)) * PAGE_SIZE as u64
}

fn nth(piece: &Piece, k: u16) -> (u16, Place, u64) {
    let place = Place {
        offset: piece.place.offset.saturating_add(k),
        ..piece.place
    };
    let page = piece.pages.first().saturating_add(k);
    (page, place, piece.stamp.wrapping_add(k.into()))
}

impl Io {
    /// With `own`, it has pages of its own, as writes and copies need; with `account`, the caller pays for it.
    pub(super) fn new(own: bool, account: bool) -> Option<Self> {
        let flags = if account {
            GFP_KERNEL_ACCOUNT
        } else {
            GFP_KERNEL
        };
        let none = || KVVec::from_elem(null_mut(), SLOT_PAGES.into(), flags).ok();
        let mut io = Self {
            held: none()?,
            own: KVVec::new(),
            room: KVVec::from_elem(uvm_rust_bvec::default(), SLOT_PAGES.into(), flags).ok()?,
        };
        if own {
            io.own = none()?;
            for page in io.own.iter_mut() {
                // SAFETY: no preconditions.
                *page = unsafe { bindings::uvm_seam_page_new(account) };
                if page.is_null() {
                    return None;
                }
            }
        }
        Some(io)
    }

    /// Keeps the host memory of `pages`; false if some page has none.
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
        for of in pages.pages() {
            if let Some(held) = self.held.get_mut(usize::from(of)) {
                // SAFETY: by this function's contract; the reference is given back by `release`.
                *held = unsafe { bindings::uvm_seam_host_page(block, of.into(), true) };
            }
            if self.page(of).is_null() {
                self.release();
                return false;
            }
        }
        true
    }

    /// Those of `pages` that have the host memory that is held.
    ///
    /// # Safety
    ///
    /// The block is locked.
    pub(super) unsafe fn unchanged(
        &self,
        block: *mut uvm_va_block_struct,
        pages: &PageMask,
    ) -> PageMask {
        let mut same = PageMask::EMPTY;
        for of in pages.pages() {
            // SAFETY: by this function's contract.
            let page = unsafe { bindings::uvm_seam_host_page(block, of.into(), false) };
            if page == self.page(of) && !page.is_null() {
                same.set(of);
            }
        }
        same
    }

    /// A page that is held; null for none.
    fn page(&self, of: u16) -> *mut page {
        self.held
            .get(usize::from(of))
            .map_or(null_mut(), |page| *page)
    }

    /// So many of what is held, or its own, are read or written: 0 or an errno.
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

    /// Reads a piece into what is held: 0 or an errno.
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

    /// What was read is decrypted there. Returns what is what was written, and what is something else.
    pub(super) fn decrypt(&mut self, dev: &Dev, piece: &Piece) -> (PageMask, PageMask) {
        let (mut right, mut wrong) = (PageMask::EMPTY, PageMask::EMPTY);
        let Some(mut cipher) = Cipher::new(dev) else {
            return (right, wrong);
        };
        for (of, place, stamp) in (0..piece.pages.pages()).map(|k| nth(piece, k)) {
            let page = self.page(of);
            if page.is_null() {
                continue;
            }
            let expected = dev.flash().table.lock().sum(place);
            // SAFETY: the page is held.
            unsafe {
                let is = |sum| sum == bindings::uvm_seam_flash_sum(page, stamp);
                if !expected.is_none_or(is) {
                    wrong.set(of);
                } else if cipher.crypt(page, page, stamp, false) {
                    right.set(of);
                }
            }
        }
        (right, wrong)
    }

    /// Encrypts a piece of what is held into its own, and notes the sums; whether that was done. The sums
    /// are taken before the device is given the pages, so that what is changed on the way is noticed. The
    /// place is pinned: nobody reads what a write that fails has noted there.
    fn seal(&mut self, dev: &Dev, piece: &Piece) -> bool {
        let Some(mut cipher) = Cipher::new(dev) else {
            return false;
        };
        (0..piece.pages.pages())
            .map(|k| nth(piece, k))
            .all(|(of, place, stamp)| {
                let (page, own) = (self.page(of), self.own.get(usize::from(of)));
                let Some(own) = own.filter(|_| !page.is_null()) else {
                    return false;
                };
                // SAFETY: one is held, and the other ours; no spinlock is held.
                let sum = unsafe {
                    bindings::uvm_seam_rest();
                    if !cipher.crypt(page, *own, stamp, true) {
                        return false;
                    }
                    bindings::uvm_seam_flash_sum(*own, stamp)
                };
                dev.flash().table.lock().set_sum(place, sum);
                true
            })
    }

    /// Writes a piece of what is held; it has pages of its own.
    ///
    /// # Safety
    ///
    /// The device is open, and no lock is held; the place of the piece is pinned.
    pub(super) unsafe fn write(&mut self, dev: &Dev, piece: &Piece) -> Wrote {
        if !self.seal(dev, piece) {
            return Wrote::Nothing;
        }
        let own = (piece.pages.first(), piece.pages.pages());
        let at = position(piece.place);
        // SAFETY: by this function's contract.
        if unsafe { self.transfer(dev.seam(), true, own, at, true, Urgency::Background) } != 0 {
            return Wrote::Failed;
        }
        Wrote::All
    }

    /// Reads so many pages into its own, or writes them from there; whether that is done.
    ///
    /// # Safety
    ///
    /// The device is open, and no lock is held; the place is pinned.
    pub(super) unsafe fn copy(&mut self, dev: &Dev, at: Place, pages: u16, write: bool) -> bool {
        let (dev, at) = (dev.seam(), position(at));
        // SAFETY: by this function's contract.
        unsafe { self.transfer(dev, true, (0, pages), at, write, Urgency::Background) == 0 }
    }

    /// Marks a device as ours, which it has to be already, or empty, unless by force: 0 or an errno. The buffer
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

    /// What is in a page of its own; nothing if it has none.
    fn bytes(&mut self, of: u16) -> &mut [u8] {
        let Some(own) = self.own.get(usize::from(of)) else {
            return &mut [];
        };
        // SAFETY: it is ours, and nobody else uses it as long as `self` is borrowed.
        unsafe { core::slice::from_raw_parts_mut(bindings::uvm_seam_page_bytes(*own), PAGE_SIZE) }
    }

    /// Lets go what is held.
    pub(super) fn release(&mut self) {
        put(&mut self.held);
    }
}

/// Gives the references on pages back; null is no page.
fn put(pages: &mut [*mut page]) {
    for page in pages {
        let page = core::mem::replace(page, null_mut());
        if !page.is_null() {
            // SAFETY: all callers have a reference on what is not null.
            unsafe { bindings::uvm_seam_page_put(page) };
        }
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        put(&mut self.held);
        put(&mut self.own);
    }
}
