// SPDX-License-Identifier: GPL-2.0-only OR MIT

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
use crate::emu::PeerId;
use crate::emu::Slot;
use crate::emu::Space;
use crate::emu::MAX_PEERS;
use crate::mem::OutOfMemory;
use crate::mem::TryVec;

const PAGE: u64 = 4096;

extern "C" {
    fn vgpu_c_alloc(bytes: u64) -> *mut Mem;
    fn vgpu_c_get(mem: *mut Mem);
    fn vgpu_c_put(mem: *mut Mem);
    fn vgpu_c_sysmem(dma: u64) -> *mut c_void;
}

/// The start of `struct vgpu_mem`: memory with a count of those who use it.
#[repr(C)]
pub(crate) struct Mem {
    data: *mut c_void,
    bytes: u64,
}

/// Memory of the kernel's that is ours.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    bytes: u64,
    /// What keeps it: a reference of ours. `None` of vidmem, a peer's too, which stays.
    mem: Option<NonNull<Mem>>,
}

impl Buffer {
    /// Allocates `bytes` zeroed bytes. Sleeps.
    pub(crate) fn alloc(bytes: u64) -> Result<Self, OutOfMemory> {
        // SAFETY: any size may be asked for.
        let mem = NonNull::new(unsafe { vgpu_c_alloc(bytes) }).ok_or(OutOfMemory)?;
        // SAFETY: the reference that comes with the memory is ours.
        unsafe { Buffer::new(mem) }.ok_or(OutOfMemory)
    }

    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// The reference is the caller's to give.
    unsafe fn new(mem: NonNull<Mem>) -> Option<Self> {
        // SAFETY: the reference keeps it; data and bytes do not change.
        let (data, bytes) = unsafe { ((*mem.as_ptr()).data, (*mem.as_ptr()).bytes) };
        Some(Self {
            start: NonNull::new(data.cast::<u8>())?,
            bytes,
            mem: Some(mem),
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(mem) = self.mem {
            // SAFETY: the reference is ours, and no view of the memory is left:
            // they borrow the machine, and with it this.
            unsafe { vgpu_c_put(mem.as_ptr()) };
        }
    }
}

/// Memory that the GPU reaches.
pub(crate) struct KernelMachine {
    vidmem: Buffer,
    /// The buffers by slot number; `None` is free. Before them is other GPUs' vidmem, by their numbers here. As one array they
    /// take less of the stack on which this is put together.
    buffers: TryVec<Option<Buffer>>,
    /// Allocated before the GPU's mutex was taken, for `alloc` to use.
    spares: Spares,
}

/// Buffers allocated ahead, the next one last.
pub(crate) type Spares = [Option<Buffer>; 2];

// SAFETY: the pointers are to kernel memory that any thread may use; it is
// accessed through atomics only, and freed through `&mut self`.
unsafe impl Send for KernelMachine {}

impl KernelMachine {
    /// # Safety
    ///
    /// `vidmem` is page-aligned memory, `bytes` long, that lives as long as this
    /// and is accessed as atomics only.
    pub(crate) unsafe fn new(vidmem: NonNull<u8>, bytes: u64) -> Result<Self, OutOfMemory> {
        let vidmem = Buffer {
            start: vidmem,
            bytes,
            mem: None,
        };
        let mut buffers = TryVec::with_capacity(2 * MAX_PEERS)?;
        for _ in 0..MAX_PEERS {
            buffers.push(None)?;
        }
        Ok(Self {
            vidmem,
            buffers,
            spares: [None, None],
        })
    }

    /// Lets a number name a peer's vidmem.
    ///
    /// # Safety
    ///
    /// As for [`Self::new`], until [`Self::remove_peer`].
    pub(crate) unsafe fn set_peer(&mut self, id: PeerId, vidmem: NonNull<u8>, bytes: u64) {
        self.buffers[id.number()] = Some(Buffer {
            start: vidmem,
            bytes,
            mem: None,
        });
    }

    /// From now on a number names nobody's memory.
    pub(crate) fn remove_peer(&mut self, id: PeerId) {
        self.buffers[id.number()] = None;
    }

    /// Puts buffers in for `alloc` to use; gives back what was left of the last.
    pub(crate) fn set_spares(&mut self, spares: Spares) -> Spares {
        core::mem::replace(&mut self.spares, spares)
    }

    /// A reference to what a buffer stands on, for another GPU; null if there is
    /// no such buffer.
    pub(crate) fn share(&self, slot: Slot) -> *mut Mem {
        let Some(Some(Buffer { mem: Some(mem), .. })) = self.buffers.get(slot.0 as usize) else {
            return core::ptr::null_mut();
        };
        // SAFETY: the buffer holds a reference.
        unsafe { vgpu_c_get(mem.as_ptr()) };
        mem.as_ptr()
    }

    /// Makes a buffer of shared memory; gives its slot and bytes. The reference
    /// is taken over if this succeeds, and else still the caller's.
    ///
    /// # Safety
    ///
    /// The reference is the caller's to give.
    pub(crate) unsafe fn adopt(&mut self, mem: NonNull<Mem>) -> Result<(Slot, u64), OutOfMemory> {
        // SAFETY: the caller's contract.
        let mut buffer = unsafe { Buffer::new(mem) }.ok_or(OutOfMemory)?;
        let bytes = buffer.bytes;
        let slot = self.free_slot().inspect_err(|_| buffer.mem = None)?;
        self.buffers[slot.0 as usize] = Some(buffer);
        Ok((slot, bytes))
    }

    /// A slot without a buffer.
    fn free_slot(&mut self) -> Result<Slot, OutOfMemory> {
        let free = self
            .buffers
            .iter()
            .skip(MAX_PEERS)
            .position(Option::is_none);
        let slot = match free {
            Some(i) => MAX_PEERS + i,
            None => {
                self.buffers.push(None)?;
                self.buffers.len() - 1
            }
        };
        Ok(Slot(slot as u32))
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
        self.find(at)
            .map_or(core::ptr::null_mut(), |(p, _)| p.as_ptr())
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
        // RAM for ever, a peer's until `remove_peer` and buffers until `free`, which take `&mut self`. Every bit
        // pattern is a `T`, and others who access it (CPUs through mappings of
        // the pages, UVM) are like hardware to us, which is what atomics are for.
        Some(unsafe { from_raw_parts(start.cast::<T>().as_ptr(), n) })
    }
}

impl Machine for KernelMachine {
    fn alloc(&mut self, bytes: u64) -> Result<Slot, OutOfMemory> {
        let slot = self.free_slot()?;
        let spare = self
            .spares
            .iter_mut()
            .find(|s| s.as_ref().is_some_and(|b| b.bytes == bytes));
        let buffer = match spare.and_then(Option::take) {
            Some(b) => b,
            // At set-up, when nobody else has the GPU yet.
            None => Buffer::alloc(bytes)?,
        };
        self.buffers[slot.0 as usize] = Some(buffer);
        Ok(slot)
    }

    fn free(&mut self, slot: Slot) {
        if let Some(b) = self.buffers.get_mut(slot.0 as usize) {
            *b = None;
        }
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
