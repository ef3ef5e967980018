// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The only unsafe code of this crate: ioctls, device nodes and mappings.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytemuck::AnyBitPattern;

/// A call with a structure of the caller's.
///
/// The structure may hold an address only if the callee reads there, or if it is
/// that of a [`Mapping`] the caller keeps for as long as the callee uses it. So
/// this stays inside the crate.
pub(crate) fn ioctl<T: AnyBitPattern>(
    fd: BorrowedFd<'_>,
    number: u32,
    argument: &mut T,
) -> io::Result<()> {
    // SAFETY: `argument` is a live, exclusive T; the callees write at most
    // size_of::<T>() bytes there (checked against their headers by the layout
    // test), and any bytes are a valid T (AnyBitPattern).
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), u64::from(number), argument as *mut T) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The same of UVM, which refuses all calls while the system sleeps, or is about to.
pub(crate) fn uvm_ioctl<T: AnyBitPattern>(
    fd: BorrowedFd<'_>,
    number: u32,
    argument: &mut T,
) -> io::Result<()> {
    loop {
        match ioctl(fd, number, argument) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// An argument that no call may accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPointer {
    /// Address 0, where nothing is mapped.
    Null,
    /// A page without any access.
    Unmapped,
    /// Starts on a page, and goes on where nothing is mapped: 4 bytes can be read.
    Tail,
    /// A page that can only be read: what the kernel reads is all ones.
    ReadOnly,
    /// An address of the kernel.
    Kernel,
    /// The last bytes of the address space.
    Wrapping,
}

impl BadPointer {
    /// All kinds, for tests that try each.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::Unmapped,
        Self::Tail,
        Self::ReadOnly,
        Self::Kernel,
        Self::Wrapping,
    ];
}

/// A call for tests of bad input, with `bytes` as its structure, or with a bad
/// pointer (`bytes` is then what a readable part of it holds).
///
/// For /dev/vgpu and the calls of `uvm_rust_ioctl.h` only: their structures hold
/// no address that the kernel writes to.
pub fn raw_ioctl(
    fd: BorrowedFd<'_>,
    number: u32,
    bytes: &mut [u8],
    bad: Option<BadPointer>,
) -> io::Result<()> {
    let pages = Mapping::anonymous(0, 2 * crate::PAGE as usize)?;
    let (base, page) = (pages.address(), crate::PAGE as usize);
    let fits = bytes.len().min(page);
    // SAFETY: `base..base + page` is this function's own fresh writable mapping.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base as *mut u8, fits) };
    let address = match bad {
        None => bytes.as_mut_ptr() as usize,
        Some(BadPointer::Null) => 0,
        Some(BadPointer::Unmapped) => {
            pages.protect(libc::PROT_NONE)?;
            base
        }
        Some(BadPointer::Tail) => {
            let start = base + page - 4;
            // SAFETY: the four bytes before `base + page` are in the mapping.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, 4) };
            pages.protect_tail(page)?;
            start
        }
        Some(BadPointer::ReadOnly) => {
            pages.protect(libc::PROT_READ)?;
            base
        }
        Some(BadPointer::Kernel) => 0xffff_8880_0000_0000,
        Some(BadPointer::Wrapping) => usize::MAX - 7,
    };
    // SAFETY: `address` is a buffer of the caller's with room for any structure of
    // these calls, or a place where the kernel's checked copies fail or end in
    // this function's own mapping. The structures hold no address written to.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), u64::from(number), address) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a character device node.
pub(crate) fn mknod(path: &str, major: u32, minor: u32) -> io::Result<()> {
    let path = CString::new(path)?;
    // SAFETY: `path` is a terminated string that outlives the call.
    let rc = unsafe {
        libc::mknod(
            path.as_ptr(),
            libc::S_IFCHR | 0o666,
            libc::makedev(major, minor),
        )
    };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A mapping of memory that both the CPU and GPUs may change at any time.
///
/// Invariant: `base..base + len` is mapped, page aligned, and belongs to this
/// object alone until it is dropped. It is zeroed or filled by the program, so
/// its bytes are always initialised.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the object is only an address range that it owns; access goes through
// atomics, which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method changes the object through a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Managed memory: `fd` is a UVM file, which wants its offset to be the address.
    pub(crate) fn managed(fd: BorrowedFd<'_>, address: usize, len: usize) -> io::Result<Self> {
        Self::map(
            address,
            len,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            address as i64,
        )
    }

    /// A part of a file, from byte `offset` on.
    pub(crate) fn file(
        file: BorrowedFd<'_>,
        offset: u64,
        address: usize,
        len: usize,
    ) -> io::Result<Self> {
        Self::map(
            address,
            len,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset as i64,
        )
    }

    /// The same part of a file, from its beginning on, again and again: a page of it is at many addresses.
    pub(crate) fn repeated(file: BorrowedFd<'_>, part: usize, len: usize) -> io::Result<Self> {
        // SAFETY: the kernel finds the address, so that this replaces no mapping of the program.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::InvalidData)?;
        let whole = Self { base, len };
        for at in (0..len).step_by(part) {
            // SAFETY: `at..at + part.min(len - at)` is within the mapping that was just made, which nobody else has.
            let mapped = unsafe {
                libc::mmap(
                    base.as_ptr().add(at).cast(),
                    part.min(len - at),
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(whole)
    }

    /// A file from its beginning on, of which what is written is the program's alone.
    pub(crate) fn file_alone(file: BorrowedFd<'_>, address: usize, len: usize) -> io::Result<Self> {
        Self::map(address, len, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    }

    /// Private zeroed memory, at `address` unless that is 0.
    pub(crate) fn anonymous(address: usize, len: usize) -> io::Result<Self> {
        Self::map(address, len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(address: usize, len: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Self> {
        let fixed = match address {
            0 => 0,
            _ => libc::MAP_FIXED_NOREPLACE,
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED this replaces no mapping of the program.
        let base = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                len,
                protection,
                flags | fixed,
                fd,
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, len })
    }

    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Makes the mapping writable, or read-only: then a write ends the program.
    pub(crate) fn protect_all(&self, writable: bool) -> io::Result<()> {
        let write = if writable { libc::PROT_WRITE } else { 0 };
        self.protect(libc::PROT_READ | write)
    }

    fn protect(&self, protection: i32) -> io::Result<()> {
        // SAFETY: the range is this object's own. It stays readable, so references
        // to its atomics stay valid (a write to a read-only page is a signal); only
        // `raw_ioctl` takes reading away, and does not touch it afterwards.
        if unsafe { libc::mprotect(self.base.as_ptr().cast(), self.len, protection) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn protect_tail(&self, from: usize) -> io::Result<()> {
        let start = (self.address() + from) as *mut libc::c_void;
        // SAFETY: as in `protect`, for the part behind `from`.
        if unsafe { libc::mprotect(start, self.len - from, libc::PROT_NONE) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Asks for huge pages, or for none.
    pub(crate) fn advise_huge(&self, huge: bool) -> io::Result<()> {
        self.advise(if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        })
    }

    /// Has Linux take the pages back, as if memory were scarce.
    pub(crate) fn page_out(&self) -> io::Result<()> {
        self.advise(libc::MADV_PAGEOUT)
    }

    /// Lets Linux have zeros in place of the contents of any page, until somebody writes to it.
    pub(crate) fn free_lazily(&self) -> io::Result<()> {
        self.advise(libc::MADV_FREE)
    }

    /// Calls madvise(2) for all of it.
    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the memory is this object's, and is read by atomic accesses: whatever is advised they see the contents or zeros.
        if unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Moves the pages of `from`, of the same size, here, with what they hold; `from` is empty
    /// memory then (zeros).
    pub(crate) fn take_pages_of(&self, from: &Self) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both ranges are mapped by the invariant, and stay so: DONTUNMAP leaves
        // `from` mapped, and the kernel refuses what is not private anonymous memory.
        let at = unsafe {
            libc::mremap(
                from.base.as_ptr().cast(),
                from.len,
                self.len,
                flags,
                self.base.as_ptr(),
            )
        };
        match at {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Moves the pages of the first `len` bytes to a new place, and leaves this mapped: what is touched here then is new.
    pub(crate) fn moved(&self, len: usize) -> io::Result<Self> {
        let len = len.min(self.len);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        // Linux looks at the address all the same.
        let anywhere = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the range is mapped by the invariant, and stays so. Without MREMAP_FIXED the new one replaces no mapping, and it is
        // nobody else's.
        let at = unsafe { libc::mremap(self.base.as_ptr().cast(), len, len, flags, anywhere) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, len })
    }

    /// Takes one more reference of the page at `offset` bytes, by vmsplice(2) into a pipe, until
    /// what this returns is dropped: Linux then migrates the page nowhere.
    pub(crate) fn hold_page(&self, offset: usize) -> io::Result<[OwnedFd; 2]> {
        let mut ends = [0; 2];
        // SAFETY: the array has room for the two descriptors.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were opened above, and nobody else knows of them.
        let ends = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let page = libc::iovec {
            iov_base: self.base.as_ptr().wrapping_add(offset).cast(),
            iov_len: 8,
        };
        // SAFETY: the kernel checks the address, and reads the page at most.
        if unsafe { libc::vmsplice(ends[1].as_raw_fd(), &page, 1, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(ends)
    }

    /// The mapping as 64-bit atomics.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: by the invariant the range is mapped, aligned and initialised for
        // as long as `self` lives; atomics allow any other party to change it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }

    /// The mapping as 32-bit atomics.
    pub(crate) fn half_words(&self) -> &[AtomicU32] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 4) }
    }

    /// Copies `out.len()` words out, from word `first` on.
    pub(crate) fn copy_words(&self, first: usize, out: &mut [u64]) {
        for (to, from) in out.iter_mut().zip(&self.words()[first..]) {
            *to = from.load(Ordering::Relaxed);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this object's own, and nothing borrows it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
