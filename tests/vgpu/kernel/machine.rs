// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The kernel as the emulator's [`Machine`].

use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;
use core::slice::from_raw_parts;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicU8;

use kernel::bindings;
use kernel::prelude::*;

use crate::emu::Loc;
use crate::emu::Machine;
use crate::emu::Slot;
use crate::emu::Space;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

const PAGE: u64 = 4096;

extern "C" {
    fn vgpu_c_alloc(bytes: u64) -> *mut c_void;
    fn vgpu_c_free(p: *mut c_void);
    fn vgpu_c_sysmem(dma: u64) -> *mut c_void;
}

/// Memory of the kernel's that is ours.
struct Buffer {
    start: NonNull<u8>,
    bytes: u64,
}

/// Memory that the GPU reaches.
pub(crate) struct KernelMachine {
    vidmem: Buffer,
    /// By slot number; `None` is free.
    buffers: TryVec<Option<Buffer>>,
}

// SAFETY: the pointers are to kernel memory that any thread may use; it is
// accessed through atomics only, and freed through `&mut self`.
unsafe impl Send for KernelMachine {}

impl KernelMachine {
    /// # Safety
    ///
    /// `vidmem` is page-aligned memory, `bytes` long, that lives as long as this
    /// and is accessed as atomics only.
    pub(crate) unsafe fn new(vidmem: NonNull<u8>, bytes: u64) -> Self {
        Self { vidmem: Buffer { start: vidmem, bytes }, buffers: TryVec::new() }
    }

    /// Where a buffer starts, for UVM; null if there is none.
    pub(crate) fn start(&self, slot: Slot) -> *mut u8 {
        match self.buffers.get(slot.0 as usize) {
            Some(Some(b)) => b.start.as_ptr(),
            _ => core::ptr::null_mut(),
        }
    }

    /// Where an address in a buffer is, for UVM; null if there is none.
    pub(crate) fn pointer(&self, at: Loc) -> *mut u8 {
        self.find(at).map_or(core::ptr::null_mut(), |(p, _)| p.as_ptr())
    }

    /// The memory at an address, and how many bytes are contiguous there.
    fn find(&self, at: Loc) -> Option<(NonNull<u8>, u64)> {
        let buffer = match at.space {
            Space::Vidmem => &self.vidmem,
            Space::Buffer(slot) => self.buffers.get(slot.0 as usize)?.as_ref()?,
            Space::Sysmem => {
                // SAFETY: the function takes any address.
                let page = unsafe { vgpu_c_sysmem(at.at) };
                let offset = at.at % PAGE;
                let page = NonNull::new(page.cast::<u8>())?;
                // SAFETY: the offset is within the page.
                return Some((unsafe { page.add(offset as usize) }, PAGE - offset));
            }
        };
        let left = buffer.bytes.checked_sub(at.at).filter(|&n| n > 0)?;
        // SAFETY: the offset is within the buffer.
        Some((unsafe { buffer.start.add(at.at as usize) }, left))
    }

    /// `n` values of type `T` at an address.
    ///
    /// # Safety
    ///
    /// `T` is an atomic integer.
    unsafe fn view<T>(&self, at: Loc, n: usize) -> Option<&[T]> {
        let (start, left) = self.find(at)?;
        let bytes = n.checked_mul(size_of::<T>())?;
        if bytes as u64 > left || !start.cast::<T>().is_aligned() {
            return None;
        }
        // SAFETY: so many bytes are memory, aligned. It stays: vidmem and system
        // RAM for ever, buffers until `free`, which takes `&mut self`. Every bit
        // pattern is a `T`, and others who access it (CPUs through mappings of
        // the pages, UVM) are like hardware to us, which is what atomics are for.
        Some(unsafe { from_raw_parts(start.cast::<T>().as_ptr(), n) })
    }
}

impl Machine for KernelMachine {
    fn alloc(&mut self, bytes: u64) -> Result<Slot, OutOfMemory> {
        // SAFETY: any size may be asked for.
        let start = unsafe { vgpu_c_alloc(bytes) };
        let start = NonNull::new(start.cast::<u8>()).ok_or(OutOfMemory)?;
        let buffer = Some(Buffer { start, bytes });
        if let Some(i) = self.buffers.iter().position(Option::is_none) {
            self.buffers[i] = buffer;
            return Ok(Slot(i as u32));
        }
        let slot = Slot(self.buffers.len() as u32);
        if self.buffers.push(buffer).is_err() {
            // SAFETY: allocated above, and not used.
            unsafe { vgpu_c_free(start.as_ptr().cast()) };
            return Err(OutOfMemory);
        }
        Ok(slot)
    }

    fn free(&mut self, slot: Slot) {
        let Some(b) = self.buffers.get_mut(slot.0 as usize).and_then(Option::take) else { return };
        // SAFETY: allocated by `alloc`, and no view of it is left: `&mut self`.
        unsafe { vgpu_c_free(b.start.as_ptr().cast()) };
    }

    fn extent(&self, at: Loc) -> u64 {
        self.find(at).map_or(0, |(_, n)| n)
    }

    fn bytes(&self, at: Loc, n: usize) -> Option<&[AtomicU8]> {
        if n == 0 {
            return Some(&[]);
        }
        // SAFETY: atomic.
        unsafe { self.view(at, n) }
    }

    fn words32(&self, at: Loc, n: usize) -> Option<&[AtomicU32]> {
        // SAFETY: atomic.
        unsafe { self.view(at, n) }
    }

    fn words(&self, at: Loc, n: usize) -> Option<&[AtomicU64]> {
        // SAFETY: atomic.
        unsafe { self.view(at, n) }
    }

    fn now_ns(&self) -> u64 {
        // SAFETY: may be called from anywhere.
        unsafe { bindings::ktime_get() as u64 }
    }

    fn report(&self, what: fmt::Arguments<'_>) {
        pr_err!("{}\n", what);
    }
}

impl Drop for KernelMachine {
    fn drop(&mut self) {
        for i in 0..self.buffers.len() {
            self.free(Slot(i as u32));
        }
    }
}
