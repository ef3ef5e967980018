// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Memory that CPU and GPUs share.

use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::ffi::Mapping;
use crate::uvm;
use crate::{Error, Process, Result, BLOCK, PAGE};

/// An element of a [`Buffer`]: `u32` or `u64`.
pub trait Element: Copy + Default + PartialEq + private::Sealed + 'static {
    /// Size of one element, in bytes.
    const BYTES: u64;
    #[doc(hidden)]
    fn load(mapping: &Mapping, index: usize) -> Self;
    #[doc(hidden)]
    fn store(mapping: &Mapping, index: usize, value: Self);
}

mod private {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

impl Element for u32 {
    const BYTES: u64 = 4;
    fn load(mapping: &Mapping, index: usize) -> Self {
        mapping.half_words()[index].load(Ordering::Relaxed)
    }
    fn store(mapping: &Mapping, index: usize, value: Self) {
        mapping.half_words()[index].store(value, Ordering::Relaxed);
    }
}

impl Element for u64 {
    const BYTES: u64 = 8;
    fn load(mapping: &Mapping, index: usize) -> Self {
        mapping.words()[index].load(Ordering::Relaxed)
    }
    fn store(mapping: &Mapping, index: usize, value: Self) {
        mapping.words()[index].store(value, Ordering::Relaxed);
    }
}

/// A run of elements that the CPU and GPUs can use, freed when dropped.
///
/// Starts on a 2 MiB boundary of its own, so that two buffers share no va_block.
/// CPU accesses are relaxed atomics: a GPU kernel that has been waited for
/// happened before, one that still runs may do anything in between.
#[derive(Debug)]
pub struct Buffer<T> {
    mapping: Mapping,
    len: usize,
    managed: bool,
    of: PhantomData<T>,
}

/// Next address to give out. Far from where Linux puts anything on x86-64, and
/// within the 47 bits of user space.
static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);

/// Finds room for `bytes` and calls `map` with addresses until one is free.
fn place(
    bytes: usize,
    map: impl Fn(usize) -> std::io::Result<Mapping>,
) -> std::io::Result<Mapping> {
    let step = bytes.next_multiple_of(BLOCK as usize) + BLOCK as usize;
    loop {
        match map(NEXT.fetch_add(step, Ordering::Relaxed)) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {}
            done => return done,
        }
    }
}

impl<T: Element> Buffer<T> {
    /// Managed memory of `process`, like cudaMallocManaged. `len` is in elements.
    pub fn managed(process: &Process, len: usize) -> Result<Self> {
        let bytes = Self::bytes_for(len);
        let map = || {
            place(bytes, |at| Mapping::managed(process.uvm_fd(), at, bytes))
                .map_err(|e| Error::os(format!("mmap of {bytes} bytes of /dev/nvidia-uvm"), e))
        };
        let mut mapping = map()?;
        // While the system sleeps, mmap succeeds and maps nothing; the call waits.
        let valid = |mapping: &Mapping| {
            process.call(&mut uvm::ValidateVaRange {
                base: mapping.address() as u64,
                length: bytes as u64,
                ..Default::default()
            })
        };
        if valid(&mapping).is_err() {
            mapping = map()?;
            valid(&mapping)?;
        }
        Ok(Self {
            mapping,
            len,
            managed: true,
            of: PhantomData,
        })
    }

    /// Managed memory of `process` at `address`, where nothing is mapped: it may share a
    /// 2 MiB block with ordinary memory.
    pub fn managed_at(process: &Process, address: u64, len: usize) -> Result<Self> {
        let bytes = Self::bytes_for(len);
        let mapping = Mapping::managed(process.uvm_fd(), address as usize, bytes)
            .map_err(|e| Error::os(format!("mmap of /dev/nvidia-uvm at {address:#x}"), e))?;
        Ok(Self {
            mapping,
            len,
            managed: true,
            of: PhantomData,
        })
    }

    /// Ordinary memory, like malloc; a GPU reaches it through HMM.
    pub fn ordinary(len: usize) -> Result<Self> {
        let bytes = Self::bytes_for(len);
        let mapping = place(bytes, |at| Mapping::anonymous(at, bytes))
            .map_err(|e| Error::os(format!("mmap of {bytes} bytes"), e))?;
        Ok(Self {
            mapping,
            len,
            managed: false,
            of: PhantomData,
        })
    }

    /// A part of a file that is mapped for all processes, from byte `offset` on, a multiple of the page size; a GPU reaches it
    /// through HMM. A CPU that touches what is beyond the end of the file ends the program.
    pub fn of_file(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Self> {
        let bytes = Self::bytes_for(len);
        let mapping = place(bytes, |at| Mapping::file(file, offset, at, bytes))
            .map_err(|e| Error::os(format!("mmap of {bytes} bytes of a file"), e))?;
        Ok(Self {
            mapping,
            len,
            managed: false,
            of: PhantomData,
        })
    }

    /// A file from its beginning on, of which nobody else sees what the program writes (MAP_PRIVATE).
    pub fn of_file_alone(file: BorrowedFd<'_>, len: usize) -> Result<Self> {
        let bytes = Self::bytes_for(len);
        let mapping = place(bytes, |at| Mapping::file_alone(file, at, bytes))
            .map_err(|e| Error::os(format!("mmap of {bytes} bytes of a file"), e))?;
        Ok(Self {
            mapping,
            len,
            managed: false,
            of: PhantomData,
        })
    }

    /// Ordinary memory at `address`, where nothing is mapped: behind a buffer that is no whole number of 2 MiB blocks.
    pub fn ordinary_at(address: u64, len: usize) -> Result<Self> {
        let bytes = Self::bytes_for(len);
        let mapping = Mapping::anonymous(address as usize, bytes)
            .map_err(|e| Error::os(format!("mmap of {bytes} bytes at {address:#x}"), e))?;
        Ok(Self {
            mapping,
            len,
            managed: false,
            of: PhantomData,
        })
    }

    fn bytes_for(len: usize) -> usize {
        (len * T::BYTES as usize)
            .next_multiple_of(PAGE as usize)
            .max(PAGE as usize)
    }

    /// Lets the kernel use huge pages for ordinary memory, or not.
    pub fn huge_pages(&self, huge: bool) -> Result<()> {
        self.mapping
            .advise_huge(huge)
            .map_err(|e| Error::os("madvise", e))
    }

    /// Has Linux take the pages of ordinary memory back, as it does by itself where memory is scarce (MADV_PAGEOUT).
    pub fn page_out(&self) -> Result<()> {
        self.mapping.page_out().map_err(|e| Error::os("madvise", e))
    }

    /// Lets Linux have zeros in place of what ordinary memory has, until it is written to (MADV_FREE).
    pub fn free_lazily(&self) -> Result<()> {
        self.mapping
            .free_lazily()
            .map_err(|e| Error::os("madvise", e))
    }

    /// Makes the memory read-only, for the GPU as well. A write by the CPU then ends
    /// the program.
    pub fn protect(&self) -> Result<()> {
        self.mapping
            .protect_all(false)
            .map_err(|e| Error::os("mprotect", e))
    }

    /// Makes it writable again.
    pub fn unprotect(&self) -> Result<()> {
        self.mapping
            .protect_all(true)
            .map_err(|e| Error::os("mprotect", e))
    }

    /// Moves the pages of `from`, ordinary memory like this and as long, here, as mremap(2)
    /// does; `from` reads as zeros then.
    pub fn take_pages_of(&self, from: &Self) -> Result<()> {
        self.mapping
            .take_pages_of(&from.mapping)
            .map_err(|e| Error::os("mremap", e))
    }

    /// Moves the pages of the first `len` elements of ordinary memory to a new place, at any address, as mremap(2) does with
    /// MREMAP_DONTUNMAP; the elements read as zeros here then. Unless that is all of it, Linux takes both places for mappings of the same
    /// memory from then on, as it takes those of a process and its child.
    pub fn moved(&self, len: usize) -> Result<Self> {
        let bytes = Self::bytes_for(len);
        let mapping = self.mapping.moved(bytes);
        Ok(Self {
            mapping: mapping.map_err(|e| Error::os("mremap", e))?,
            len,
            managed: false,
            of: PhantomData,
        })
    }

    /// Holds the page of element `index`, so that Linux does not migrate it, until what this
    /// returns is dropped.
    pub fn hold_page(&self, index: usize) -> Result<[OwnedFd; 2]> {
        let offset = index * T::BYTES as usize;
        let pipe = self.mapping.hold_page(offset);
        pipe.map_err(|e| Error::os("vmsplice", e))
    }

    /// How many elements the buffer has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of all elements, in bytes.
    pub fn bytes(&self) -> u64 {
        self.len as u64 * T::BYTES
    }

    /// Is it managed memory, rather than ordinary?
    pub fn is_managed(&self) -> bool {
        self.managed
    }

    /// Address of the first element.
    pub fn address(&self) -> u64 {
        self.mapping.address() as u64
    }

    /// Address of element `index`.
    pub fn address_of(&self, index: usize) -> u64 {
        self.address() + index as u64 * T::BYTES
    }

    /// Element `index`. Panics beyond the end.
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.len, "element {index} of {}", self.len);
        T::load(&self.mapping, index)
    }

    /// Changes element `index`. Panics beyond the end.
    pub fn set(&self, index: usize, value: T) {
        assert!(index < self.len, "element {index} of {}", self.len);
        T::store(&self.mapping, index, value);
    }

    /// Sets every element to `value` of its index.
    pub fn fill(&self, value: impl Fn(usize) -> T) {
        (0..self.len).for_each(|i| T::store(&self.mapping, i, value(i)));
    }

    /// The first element that is not `value` of its index: (index, seen).
    pub fn first_other(&self, value: impl Fn(usize) -> T) -> Option<(usize, T)> {
        (0..self.len)
            .map(|i| (i, T::load(&self.mapping, i)))
            .find(|(i, seen)| *seen != value(*i))
    }
}

impl Buffer<u64> {
    /// The elements as atomics, for CPU atomics.
    pub fn atomics(&self) -> &[AtomicU64] {
        &self.mapping.words()[..self.len]
    }

    /// Copies elements from `first` on.
    pub fn copy_out(&self, first: usize, out: &mut [u64]) {
        assert!(first + out.len() <= self.len);
        self.mapping.copy_words(first, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_memory_is_block_aligned_zeroed_and_freed() -> Result<()> {
        let a = Buffer::<u64>::ordinary(1000)?;
        let b = Buffer::<u32>::ordinary(1)?;
        assert_eq!(a.address() % BLOCK, 0);
        assert_ne!(a.address() / BLOCK, b.address() / BLOCK);
        assert_eq!(a.first_other(|_| 0), None);
        a.fill(|i| i as u64 * 3);
        assert_eq!(a.get(999), 2997);
        a.set(5, 1);
        assert_eq!(a.first_other(|i| i as u64 * 3), Some((5, 1)));
        assert_eq!((b.bytes(), b.len(), b.is_managed()), (4, 1, false));
        Ok(())
    }

    #[test]
    #[should_panic(expected = "element 4 of 4")]
    fn an_index_beyond_the_end_is_caught() {
        Buffer::<u64>::ordinary(4).unwrap().get(4);
    }
}
